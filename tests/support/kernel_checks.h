// Checks of every primitive of a backend and of every pass on top of it against
// float64 (kernel_reference.h), the same for each backend. Needs the standard
// library and kernels/ alone, so that it builds on a GPU machine.
//
// The error of a tensor is the largest difference over the largest magnitude
// of what it should be (over 1 where that is 0).
#ifndef PIPEWRIGHT_TESTS_SUPPORT_KERNEL_CHECKS_H_
#define PIPEWRIGHT_TESTS_SUPPORT_KERNEL_CHECKS_H_

#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "tests/support/kernel_rig.h"

namespace pipewright {

struct KernelResult {
  double error = 0;      // NaN: the kernel gave one
  double tolerance = 0;  // what `error` may be
  std::string tensor;    // which had the largest error
  bool refused = false;  // PW_INVALID: the backend cannot do this shape
  std::string problem;   // another failure, or why it is refused
  bool ok() const { return problem.empty() && error <= tolerance; }
};

struct KernelCheck {
  std::string name;
  bool gemm;  // needs GEMMs of the type (info.types), not only loops
  bool odd;   // sizes that a backend may refuse
  std::function<KernelResult(const PwKernels*, PwDevice*, PwType)> run;
};

// Parts of PrimitiveChecks.
std::vector<KernelCheck> GemmChecks();
std::vector<KernelCheck> AttentionChecks();
std::vector<KernelCheck> OptimizerChecks();
std::vector<KernelCheck> ExpertChecks();
// Each of gemm, grouped gemm, norms, attention, ...
std::vector<KernelCheck> PrimitiveChecks();
// Each part in each style, with heads in groups, slices, shards; split and
// full backward, recomputed, deferred.
std::vector<KernelCheck> PassChecks();
// Quantising to fp8 and its products.
std::vector<KernelCheck> Fp8Checks();
// The passes of a layer whose linear layers are in fp8.
std::vector<KernelCheck> Fp8LayerChecks();
// F, B and W of embedding, layers and head of a small model against central
// differences of the float64 loss.
std::vector<KernelCheck> GradientChecks();

// Collects one result: errors of tensors, failures of calls.
class KernelCompare {
 public:
  KernelCompare(KernelRig* rig, double tolerance) : rig_(*rig) {
    result_.tolerance = tolerance;
  }
  void Tensor(const std::string& name, const Values& got, const Values& want);
  void Device(const std::string& name, const void* got, PwType type,
              const Values& want);
  // On a device that computes fp8 in tensor cores, errors up to `tolerance`.
  void WithFp8Cores(double tolerance);
  // A difference between two runs that must be equal in all bits.
  void Bits(const std::string& name, const std::vector<uint8_t>& first,
            const std::vector<uint8_t>& second);
  KernelResult Result();

 private:
  KernelRig& rig_;
  KernelResult result_;
};

// Tolerance of products in fp8 with fp32 results. Hopper's tensor cores keep
// about 14 bits of partial sums, without fast accumulation too (DeepSeek-V3,
// arXiv 2412.19437, section 3.3.2): each of a sum's about 10 steps of 32
// products cuts off up to 2^-13. On an H100 errors were up to 4.4e-4.
constexpr double kFp8PartialSums = 1e-3;

// A check of one primitive: `run` calls it and compares. The tolerance, 2e-6 in
// fp32 (one rounding of the result and of its sums) and 8e-3 in bf16 (8 bits),
// times `looser`.
KernelCheck MakeKernelCheck(
    const std::string& name, bool gemm, bool odd,
    std::function<void(KernelRig*, KernelCompare*, PwType)> run,
    double looser = 1);
// " 3x4".
std::string ShapeText(const std::vector<int64_t>& sizes);

// Uniform in [-scale, scale), from kernels/random.h.
Values RandomValues(int64_t count, uint64_t seed, double scale);

}  // namespace pipewright

#endif  // PIPEWRIGHT_TESTS_SUPPORT_KERNEL_CHECKS_H_
