// Matrix products through cuBLASLt: one plan (descriptors and algorithm) for
// each shape, asked for at its first use and kept until the device is closed.
#ifndef PIPEWRIGHT_KERNELS_CUDA_GEMM_H_
#define PIPEWRIGHT_KERNELS_CUDA_GEMM_H_

#include <memory>
#include <string>
#include <unordered_map>

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemm_layout.h"

namespace pipewright::cuda {

struct GemmPlan;

class GemmPlans {
 public:
  GemmPlans();
  ~GemmPlans();

  // "cublasLt 13.1.0", or what is missing.
  std::string Library() const;

  // Queues one product on `on`; the meaning of the pointers is
  // PwKernels.gemm's. Errors: PW_MISSING without cuBLASLt, PW_INVALID for a
  // shape or type that it has no algorithm for.
  PwStatus Run(PwDevice* device, PwStream* on, const PwGemm& gemm,
               const void* a, const void* b, const void* bias, void* c);

 private:
  PwStatus Plan(const GemmKey& key, const void* bias, GemmPlan** plan);

  void* handle_ = nullptr;  // cublasLtHandle_t
  std::unordered_map<GemmKey, std::unique_ptr<GemmPlan>, GemmKeyHash> plans_;
};

// Refuses products that no device computes, or that this one does not.
PwStatus CheckGemm(const PwDevice* device, const PwGemm& gemm);

// to[columns, rows] = transpose of from[rows, columns], one byte an element.
PwStatus TransposeBytes(cudaStream_t queue, int64_t rows, int64_t columns,
                        const void* from, void* to);

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_GEMM_H_
