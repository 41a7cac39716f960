#include "kernels/cuda/grouped_call.h"

#include <cublas_v2.h>

#include <limits>
#include <utility>
#include <vector>

#include "kernels/cuda/functions.h"
#include "kernels/cuda/library.h"

namespace pipewright::cuda {
namespace {

// As for cuBLASLt (gemm.cc). Given to cuBLAS, so that it allocates none.
constexpr size_t kWorkspaceBytes = size_t{64} << 20;

#if CUBLAS_VERSION >= 120500

struct Api {
  explicit Api(Library loaded) : library(std::move(loaded)) {
    library.Find("cublasCreate_v2", &create);
    library.Find("cublasDestroy_v2", &destroy);
    library.Find("cublasSetStream_v2", &set_stream);
    library.Find("cublasSetWorkspace_v2", &set_workspace);
    library.Find("cublasGetStatusName", &status_name);
    library.Find("cublasGemmGroupedBatchedEx", &grouped);
  }

  Library library;
  decltype(&cublasCreate_v2) create;
  decltype(&cublasDestroy_v2) destroy;
  decltype(&cublasSetStream_v2) set_stream;
  decltype(&cublasSetWorkspace_v2) set_workspace;
  decltype(&cublasGetStatusName) status_name;
  decltype(&cublasGemmGroupedBatchedEx) grouped;
};

// As Lt() of gemm.cc. Never first called while a stream is captured: it opens
// a handle.
const Api& Blas() {
  static const Api* api =
      FirstThatOpens<Api>(
          LibraryPlaces("libcublas", MajorsToTry(CUBLAS_VER_MAJOR)),
          [](const Api& tried) {
            cublasHandle_t handle = nullptr;
            if (tried.create(&handle) != CUBLAS_STATUS_SUCCESS) return false;
            tried.destroy(handle);
            return true;
          })
          .release();
  return *api;
}

PwStatus FromBlas(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return PW_OK;
  return Fail(status == CUBLAS_STATUS_ALLOC_FAILED ? PW_NO_MEMORY : PW_FAILED,
              std::string(what) + ": " + Blas().status_name(status));
}

bool IsCaptured(cudaStream_t stream) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &capture) != cudaSuccess ||
         capture != cudaStreamCaptureStatusNone;
}

// The call's arrays of sizes are on the host and of int.
std::vector<int> Ints(const std::vector<int64_t>& values) {
  return std::vector<int>(values.begin(), values.end());
}

bool FitsInt(const PwGemm& gemm) {
  constexpr int64_t kMost = std::numeric_limits<int>::max();
  return gemm.tokens <= kMost && gemm.inputs <= kMost && gemm.outputs <= kMost;
}

#endif

}  // namespace

#if CUBLAS_VERSION >= 120500

GroupedCalls::~GroupedCalls() {
  if (handle_ != nullptr) Blas().destroy(static_cast<cublasHandle_t>(handle_));
}

bool GroupedCalls::Takes(const PwStream* on, const PwGemm& gemm,
                         int32_t groups) {
  return InOneCall(gemm) && !refused_[gemm.type][gemm.pass] && groups > 0 &&
         groups <= kGroupsOfCall && FitsInt(gemm) &&
         !IsCaptured(on->stream) && Blas().library.error().empty();
}

PwStatus GroupedCalls::Run(PwDevice* device, PwStream* on, const PwGemm& gemm,
                           const GroupedLayout& layout, const void* a,
                           const void* b, void* c, bool* done) {
  *done = true;
  if (handle_ == nullptr) {
    cublasHandle_t made = nullptr;
    PW_RETURN_IF_FAILED(FromBlas(Blas().create(&made), "cublasCreate"));
    handle_ = made;
  }
  auto* handle = static_cast<cublasHandle_t>(handle_);
  const int32_t groups = layout.groups();
  const auto count = static_cast<size_t>(groups);
  void* memory = nullptr;
  PW_RETURN_IF_FAILED(on->pointers.Get(3 * count * sizeof(void*), &memory));
  void** pointers = static_cast<void**>(memory);
  PW_RETURN_IF_FAILED(
      FillGroupPointers(on->stream, gemm, layout, a, b, c, pointers));
  void* workspace = nullptr;
  PW_RETURN_IF_FAILED(on->gemm.Get(kWorkspaceBytes, &workspace));
  // A new stream takes the workspace away (cuBLAS manual, "cublasSetStream").
  PW_RETURN_IF_FAILED(
      FromBlas(Blas().set_stream(handle, on->stream), "cublasSetStream"));
  PW_RETURN_IF_FAILED(
      FromBlas(Blas().set_workspace(handle, workspace, kWorkspaceBytes),
               "cublasSetWorkspace"));
  const std::vector<cublasOperation_t> left(
      count, layout.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
  const std::vector<cublasOperation_t> right(
      count, layout.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
  const std::vector<float> alpha(count, 1.0f);
  const std::vector<float> beta(count, layout.accumulate ? 1.0f : 0.0f);
  const std::vector<int> ones(count, 1);
  const cudaDataType type = gemm.type == PW_FP32 ? CUDA_R_32F : CUDA_R_16BF;
  // The arrays of pointers are on the device, all others on the host.
  const cublasStatus_t status = Blas().grouped(
      handle, left.data(), right.data(), Ints(layout.m).data(),
      Ints(layout.n).data(), Ints(layout.k).data(), alpha.data(), pointers,
      type, Ints(layout.a_leading).data(), pointers + groups, type,
      Ints(layout.b_leading).data(), beta.data(), pointers + 2 * groups, type,
      Ints(layout.c_leading).data(), groups, ones.data(), CUBLAS_COMPUTE_32F);
  if (status == CUBLAS_STATUS_NOT_SUPPORTED ||
      status == CUBLAS_STATUS_INVALID_VALUE ||
      status == CUBLAS_STATUS_ARCH_MISMATCH) {
    refused_[gemm.type][gemm.pass] = true;
    *done = false;
    return PW_OK;
  }
  PW_RETURN_IF_FAILED(FromBlas(status, "cublasGemmGroupedBatchedEx"));
  device->implementation =
      "cublas:grouped, " + std::to_string(groups) + " experts in one call";
  return PW_OK;
}

#else

// Built with a cuBLAS that has no such call.
GroupedCalls::~GroupedCalls() = default;
bool GroupedCalls::Takes(const PwStream*, const PwGemm&, int32_t) {
  return false;
}
PwStatus GroupedCalls::Run(PwDevice*, PwStream*, const PwGemm&,
                           const GroupedLayout&, const void*, const void*,
                           void*, bool* done) {
  *done = false;
  return PW_OK;
}

#endif

}  // namespace pipewright::cuda
