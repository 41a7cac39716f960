// libcublas: cublasGemmGroupedBatchedEx (12.5 and later) and what it needs, as
// kernels/cuda/grouped_call.cc loads them.
#include <cublas_v2.h>

#include <vector>

#include "tests/emulation/libraries/gemm.h"
#include "tests/emulation/runtime/queue.h"

namespace emulated {
namespace {

struct Handle {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
};

// A group, of one product.
struct Group {
  bool a_transposed;
  bool b_transposed;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t a_leading;
  int64_t b_leading;
  int64_t c_leading;
  float alpha;
  float beta;
};

void Multiply(const Group& group, cudaDataType type, const void* a,
              const void* b, void* c) {
  const Matrix left = {a, type, group.a_transposed ? group.k : group.m,
                       group.a_transposed ? group.m : group.k, group.a_leading};
  const Matrix right = {b, type, group.b_transposed ? group.n : group.k,
                        group.b_transposed ? group.k : group.n,
                        group.b_leading};
  const std::vector<float> rows = Packed(left, group.a_transposed);
  const std::vector<float> columns = Packed(right, !group.b_transposed);
  for (int64_t column = 0; column < group.n; ++column) {
    for (int64_t row = 0; row < group.m; ++row) {
      const int64_t at = column * group.c_leading + row;
      float value =
          group.alpha * Dot(rows.data() + row * group.k,
                            columns.data() + column * group.k, group.k);
      if (group.beta != 0) value += group.beta * Read(c, type, at);
      Write(c, type, at, value);
    }
  }
}

}  // namespace
}  // namespace emulated

using emulated::Group;
using emulated::Handle;
using emulated::Violation;

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t* handle) {
  *handle = reinterpret_cast<cublasHandle_t>(new Handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
  delete reinterpret_cast<Handle*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
  // "cublasSetStream() unconditionally resets the cuBLAS library workspace
  // back to the default workspace pool" (cuBLAS manual, cublasSetStream).
  *reinterpret_cast<Handle*>(handle) = {stream, nullptr};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void* workspace,
                                     size_t) {
  reinterpret_cast<Handle*>(handle)->workspace = workspace;
  return CUBLAS_STATUS_SUCCESS;
}
const char* cublasGetStatusName(cublasStatus_t) { return "an emulated error"; }

cublasStatus_t cublasGemmGroupedBatchedEx(
    cublasHandle_t handle, const cublasOperation_t a_operations[],
    const cublasOperation_t b_operations[], const int m[], const int n[],
    const int k[], const void* alpha, const void* const a[],
    cudaDataType_t a_type, const int a_leading[], const void* const b[],
    cudaDataType_t b_type, const int b_leading[], const void* beta,
    void* const c[], cudaDataType_t c_type, const int c_leading[], int groups,
    const int sizes[], cublasComputeType_t compute) {
  const Handle on = *reinterpret_cast<Handle*>(handle);
  if (emulated::Capturing(on.stream)) Violation("cublas: in a capture");
  if (on.workspace == nullptr) Violation("cublas: a workspace of its own");
  if (a_type != b_type || a_type != c_type || compute != CUBLAS_COMPUTE_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto count = static_cast<size_t>(groups);
  for (const void* pointers :
       {static_cast<const void*>(a), static_cast<const void*>(b),
        static_cast<const void*>(c)}) {
    size_t left = 0;
    if (emulated::KindOf(pointers, &left) != emulated::Kind::kDevice ||
        left < count * sizeof(void*)) {
      Violation("cublas: %zu pointers are not on the device", count);
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  std::vector<Group> all;
  double flops = 0;
  for (size_t group = 0; group < count; ++group) {
    if (sizes[group] != 1) return CUBLAS_STATUS_NOT_SUPPORTED;
    all.push_back({a_operations[group] != CUBLAS_OP_N,
                   b_operations[group] != CUBLAS_OP_N, m[group], n[group],
                   k[group], a_leading[group], b_leading[group],
                   c_leading[group], static_cast<const float*>(alpha)[group],
                   static_cast<const float*>(beta)[group]});
    flops += 2.0 * m[group] * n[group] * k[group];
  }
  emulated::Queue(on.stream, "cublas grouped", 5e-6 + flops / 6e14, [=] {
    for (size_t group = 0; group < all.size(); ++group) {
      emulated::Multiply(all[group], a_type, a[group], b[group], c[group]);
    }
    return true;
  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
