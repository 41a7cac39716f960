// The operations of the CUDA backend whose accesses are counted, each with the
// least that it must move.
#ifndef PIPEWRIGHT_TESTS_EMULATION_ACCESSES_CASES_H_
#define PIPEWRIGHT_TESTS_EMULATION_ACCESSES_CASES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace pipewright {

// What an operation reads or writes: `times` its bytes at least. What is kept
// is small and read by all blocks: the cache has it, and each of its sectors
// counts once.
struct Operand {
  const void* memory = nullptr;
  int64_t bytes = 0;
  double times = 1;
  bool kept = false;
};

struct AccessCase {
  std::string name;
  std::string size;
  std::vector<Operand> operands;
  std::function<PwStatus()> run;
  // Allowed: times the least; `cause` says why it is more than usual.
  double most_bytes = 1.1;
  double most_sectors = 1.25;
  double most_banks = 0;  // 0: not judged
  std::string cause = {};
};

// Device memory and the operations on it.
class AccessBench {
 public:
  AccessBench(const PwKernels* kernels, PwDevice* device);
  std::vector<AccessCase> Cases();

 private:
  Operand Make(PwType type, int64_t count, double times = 1);
  Operand Kept(PwType type, int64_t count);
  Operand Ids(int64_t count, int32_t limit);
  // Ids 0, 1, 2, ...: no two are alike.
  Operand Places(int64_t count, int64_t step);
  void Elements(std::vector<AccessCase>* cases);
  void Norms(std::vector<AccessCase>* cases);
  void Ends(std::vector<AccessCase>* cases);
  void Sums(std::vector<AccessCase>* cases);
  void Bytes(std::vector<AccessCase>* cases);
  void Experts(std::vector<AccessCase>* cases);
  void Attention(std::vector<AccessCase>* cases);

  const PwKernels* kernels_;
  PwDevice* device_;
};

}  // namespace pipewright

#endif  // PIPEWRIGHT_TESTS_EMULATION_ACCESSES_CASES_H_
