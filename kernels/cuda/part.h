// A part of a GPU's multiprocessors for one rank of a process that shares the
// GPU with others: a green context (CUDA driver API, "Green Contexts", 12.4 and
// later; parts of at least 8 multiprocessors on compute capability 9). It has
// run with a stand-in for the driver only (tests/emulation). It is not
// guaranteed that parts run at the same time.
#ifndef PIPEWRIGHT_KERNELS_CUDA_PART_H_
#define PIPEWRIGHT_KERNELS_CUDA_PART_H_

#include <cstdint>
#include <memory>

#include "kernels/kernels.h"

namespace pipewright::cuda {

class Part {
 public:
  // Number `part` of `parts` that are alike. The device's primary context is
  // there. Error: PW_INVALID where the driver, this build or the device has no
  // such parts.
  static PwStatus Make(int32_t device, int32_t part, int32_t parts,
                       std::unique_ptr<Part>* made);
  ~Part();

  // Makes it the calling thread's: streams made now belong to it.
  PwStatus Use() const;
  int32_t cores() const { return cores_; }

 private:
  Part() = default;

  void* green_ = nullptr;    // CUgreenCtx
  void* context_ = nullptr;  // CUcontext of it
  int32_t cores_ = 0;
};

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_PART_H_
