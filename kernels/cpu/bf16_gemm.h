// bf16 GEMMs by oneDNN's matmul primitive, which is fast only with AMX: without
// it 2.6.3 runs bf16 5 to 10 times slower than fp32.
#ifndef PIPEWRIGHT_KERNELS_CPU_BF16_GEMM_H_
#define PIPEWRIGHT_KERNELS_CPU_BF16_GEMM_H_

#include <memory>
#include <string>

#include "kernels/cpu/choice.h"
#include "kernels/kernels.h"

namespace pipewright {

// One device's primitives, kept by shape.
class Bf16Gemm {
 public:
  // Null where it is off, where oneDNN 2 is missing or has no bf16 here, or
  // where it must be fast and does not use AMX.
  static std::unique_ptr<Bf16Gemm> Create(Bf16Products wanted);
  virtual ~Bf16Gemm() = default;
  // Arguments as of PwKernels.gemm.
  virtual PwStatus Run(const PwGemm& gemm, const void* a, const void* b,
                       const void* bias, void* c) = 0;
  // oneDNN's name of what ran last.
  virtual std::string Implementation() const = 0;
};

}  // namespace pipewright

#endif  // PIPEWRIGHT_KERNELS_CPU_BF16_GEMM_H_
