// The products of all experts in one call of cuBLAS. On an H100 with cuBLAS
// 13.1 it takes 128 experts and 16 (experiments/h100).
#ifndef PIPEWRIGHT_KERNELS_CUDA_GROUPED_CALL_H_
#define PIPEWRIGHT_KERNELS_CUDA_GROUPED_CALL_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/grouped_layout.h"

namespace pipewright::cuda {

class GroupedCalls {
 public:
  GroupedCalls() = default;
  ~GroupedCalls();
  GroupedCalls(const GroupedCalls&) = delete;
  GroupedCalls& operator=(const GroupedCalls&) = delete;

  // Does one call take this? Not without libcublas 12.5 or later, not for
  // types that it lacks (InOneCall), not once it has refused the like, and not
  // while `on` is captured: whether the call allocates or waits inside is not
  // written down, and a capture that fails is lost.
  bool Takes(const PwStream* on, const PwGemm& gemm, int32_t groups);

  // Queues it on `on`. *done false: cuBLAS does not do such products, and no
  // such call will be tried again.
  PwStatus Run(PwDevice* device, PwStream* on, const PwGemm& gemm,
               const GroupedLayout& layout, const void* a, const void* b,
               void* c, bool* done);

 private:
  void* handle_ = nullptr;   // cublasHandle_t, made at the first use
  bool refused_[2][3] = {};  // [type][pass]
};

// Groups of a call at most: where they lie are parameters of a kernel, which
// has 4 KiB of them on every device (CUDA C++ programming guide, "__global__",
// "Function Parameters").
constexpr int32_t kGroupsOfCall = 512;

// On the device, groups() pointers each: those of cuBLAS' A, B and C. Computed
// there from parameters of a kernel: nothing is copied and no thread waits.
PwStatus FillGroupPointers(cudaStream_t queue, const PwGemm& gemm,
                           const GroupedLayout& layout, const void* a,
                           const void* b, void* c, void** pointers);

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_GROUPED_CALL_H_
