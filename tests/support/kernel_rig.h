// Memory of a device under test: typed tensors to and from float64, with
// guards behind them that a kernel must leave alone. Only the standard library
// and kernels/.
#ifndef PIPEWRIGHT_TESTS_SUPPORT_KERNEL_RIG_H_
#define PIPEWRIGHT_TESTS_SUPPORT_KERNEL_RIG_H_

#include <stddef.h>
#include <stdint.h>

#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/support/kernel_reference.h"

namespace pipewright {

// What `value` is in `type` (nearest, ties to even).
double Rounded(double value, PwType type);

class KernelRig {
 public:
  KernelRig(const PwKernels* kernels, PwDevice* device);
  ~KernelRig();

  // Device memory with `values` in `type`; `values` become what was stored.
  void* Put(Values* values, PwType type);
  void* PutIds(const std::vector<int32_t>& ids);
  // Filled with NaNs: what is read before it is written shows.
  void* Space(size_t bytes);
  void* Space(int64_t count, PwType type);
  Values Get(const void* memory, int64_t count, PwType type);
  std::vector<uint8_t> Bytes(const void* memory, size_t bytes);
  void Fill(void* memory, size_t bytes, uint8_t value);
  void Write(void* memory, const Values& values, PwType type);

  // Keeps the first failure; PW_INVALID only sets refused().
  void Ok(PwStatus status, const std::string& what);
  bool refused() const { return refused_; }
  // Empty when all went well; looks at the guards.
  std::string Problem();

  const PwKernels* kernels() const { return kernels_; }
  PwDevice* device() const { return device_; }

 private:
  struct Block {
    void* memory;
    size_t bytes;
  };
  const PwKernels* kernels_;
  PwDevice* device_;
  std::vector<Block> blocks_;
  std::string problem_;
  bool refused_ = false;
};

}  // namespace pipewright

#endif  // PIPEWRIGHT_TESTS_SUPPORT_KERNEL_RIG_H_
