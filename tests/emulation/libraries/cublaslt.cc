// libcublasLt: what kernels/cuda/gemm.cc loads of it. Refuses what the cuBLAS
// manual says is refused ("cublasLtMatmul", its table of fp8), and complains
// where addresses, sizes or alignments are not what was promised.
#include <cublasLt.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <vector>

#include "tests/emulation/libraries/gemm.h"
#include "tests/emulation/runtime/queue.h"

namespace emulated {
namespace {

struct Operation {
  cublasOperation_t a = CUBLAS_OP_N;
  cublasOperation_t b = CUBLAS_OP_N;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
  const float* a_scale = nullptr;
  const float* b_scale = nullptr;
  cudaDataType bias_type = static_cast<cudaDataType>(-1);  // that of D
  int8_t fast = 0;
};
struct Layout {
  cudaDataType type;
  uint64_t rows;
  uint64_t columns;
  int64_t leading;

  size_t bytes() const {
    const size_t element = type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1;
    return (static_cast<size_t>(leading) * (columns - 1) + rows) * element;
  }
};
struct Preference {
  uint64_t workspace = 0;
  uint32_t alignments[4] = {256, 256, 256, 256};  // for A, B, C and D
};

// What the heuristic has chosen, in the bytes of cublasLtMatmulAlgo_t.
constexpr uint32_t kMark = 0x616c676f;
struct Chosen {
  uint32_t mark;
  uint32_t alignments[4];
  uint64_t workspace;
  uint64_t m;
  uint64_t n;
  uint64_t k;
  bool scaled;
};
static_assert(sizeof(Chosen) <= sizeof(cublasLtMatmulAlgo_t));

template <typename T, typename Handle>
T& Of(Handle handle) {
  return *reinterpret_cast<T*>(handle);
}
template <typename T, typename Handle>
cublasStatus_t Drop(Handle handle) {
  delete reinterpret_cast<T*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

bool IsFp8(cudaDataType type) {
  return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

template <typename T>
cublasStatus_t Take(T* to, const void* value, size_t bytes) {
  if (bytes != sizeof(T)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

void Check(const char* what, const void* at, size_t bytes, uint32_t alignment) {
  size_t left = 0;
  int device = -1;
  if (KindOf(at, &left, &device) != Kind::kDevice || left < bytes) {
    Violation("cublasLt: %s takes %zu bytes, %zu are there", what, bytes, left);
  } else if (device != CurrentDevice()) {
    Violation("cublasLt: %s is on device %d", what, device);
  }
  if (reinterpret_cast<uintptr_t>(at) % alignment != 0) {
    Violation("cublasLt: %s is not aligned to %u as was promised", what,
              alignment);
  }
}

struct Sizes {
  uint64_t m;
  uint64_t n;
  uint64_t k;
};

Sizes SizesOf(const Operation& operation, const Layout& a, const Layout& b) {
  return {operation.a == CUBLAS_OP_N ? a.rows : a.columns,
          operation.b == CUBLAS_OP_N ? b.columns : b.rows,
          operation.a == CUBLAS_OP_N ? a.columns : a.rows};
}

// A transposed, B not, everything of 16, not two tensors of e5m2.
bool Fp8Allowed(const Operation& operation, const Layout& a, const Layout& b,
                const Layout& d, const Sizes& sizes,
                const Preference& preference) {
  for (const uint64_t size :
       {sizes.m, sizes.n, sizes.k, static_cast<uint64_t>(a.leading),
        static_cast<uint64_t>(b.leading)}) {
    if (size % 16 != 0) return false;
  }
  for (const uint32_t alignment : preference.alignments) {
    if (alignment < 16) return false;
  }
  if (operation.epilogue != CUBLASLT_EPILOGUE_DEFAULT &&
      (operation.bias_type != CUDA_R_16BF || d.type == CUDA_R_32F)) {
    return false;
  }
  return operation.a == CUBLAS_OP_T && operation.b == CUBLAS_OP_N &&
         IsFp8(a.type) && IsFp8(b.type) &&
         (a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3);
}

// All that a product needs when it runs.
struct Product {
  Operation operation;
  Layout a;
  Layout b;
  Layout c;
  Layout d;
  const void* a_at;
  const void* b_at;
  const void* c_at;
  void* d_at;
  float alpha;
  float beta;
  Sizes sizes;
};

void Multiply(const Product& product) {
  const auto matrix = [](const void* at, const Layout& layout) {
    return Matrix{at, layout.type, static_cast<int64_t>(layout.rows),
                  static_cast<int64_t>(layout.columns), layout.leading};
  };
  const Operation& operation = product.operation;
  const std::vector<float> left =
      Packed(matrix(product.a_at, product.a), operation.a == CUBLAS_OP_T);
  const std::vector<float> right =
      Packed(matrix(product.b_at, product.b), operation.b == CUBLAS_OP_N);
  float scale = product.alpha;
  if (operation.a_scale != nullptr) scale *= *operation.a_scale;
  if (operation.b_scale != nullptr) scale *= *operation.b_scale;
  const bool biased = operation.epilogue == CUBLASLT_EPILOGUE_BIAS;
  const cudaDataType bias_type = static_cast<int>(operation.bias_type) < 0
                                     ? product.d.type
                                     : operation.bias_type;
  const auto rows = static_cast<int64_t>(product.sizes.m);
  const auto columns = static_cast<int64_t>(product.sizes.n);
  const auto inner = static_cast<int64_t>(product.sizes.k);
  for (int64_t column = 0; column < columns; ++column) {
    for (int64_t row = 0; row < rows; ++row) {
      float value =
          scale * Dot(&left[static_cast<size_t>(row * inner)],
                      &right[static_cast<size_t>(column * inner)], inner);
      if (product.beta != 0) {
        value += product.beta * Read(product.c_at, product.c.type,
                                     column * product.c.leading + row);
      }
      if (biased) value += Read(operation.bias, bias_type, row);
      Write(product.d_at, product.d.type, column * product.d.leading + row,
            value);
    }
  }
}

}  // namespace
}  // namespace emulated

using emulated::Chosen;
using emulated::Layout;
using emulated::Of;
using emulated::Operation;
using emulated::Preference;
using emulated::Take;
using emulated::Violation;

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  return emulated::Drop<int>(handle);
}
size_t cublasLtGetVersion() { return CUBLAS_VERSION; }
const char* cublasLtGetStatusName(cublasStatus_t status) {
  return status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                               : "an emulated error";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* made,
                                        cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  *made = reinterpret_cast<cublasLtMatmulDesc_t>(new Operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  return emulated::Drop<Operation>(operation);
}
cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
    const void* value, size_t bytes) {
  Operation& to = Of<Operation>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Take(&to.a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Take(&to.b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Take(&to.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Take(&to.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Take(&to.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
      return Take(&to.a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
      return Take(&to.b_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
      return Take(&to.fast, value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* made,
                                          cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t leading) {
  if (leading < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *made = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, rows, columns, leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  return emulated::Drop<Layout>(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(
    cublasLtMatmulPreference_t* made) {
  *made = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(
    cublasLtMatmulPreference_t preference) {
  return emulated::Drop<Preference>(preference);
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t handle,
    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
    size_t bytes) {
  Preference& to = Of<Preference>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Take(&to.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Take(&to.alignments[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Take(&to.alignments[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Take(&to.alignments[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Take(&to.alignments[3], value, bytes);
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t, cublasLtMatmulDesc_t operation_handle,
    cublasLtMatrixLayout_t a_handle, cublasLtMatrixLayout_t b_handle,
    cublasLtMatrixLayout_t c_handle, cublasLtMatrixLayout_t d_handle,
    cublasLtMatmulPreference_t preference_handle, int,
    cublasLtMatmulHeuristicResult_t* results, int* found) {
  *found = 0;
  const Operation& operation = Of<Operation>(operation_handle);
  const Layout& a = Of<Layout>(a_handle);
  const Layout& b = Of<Layout>(b_handle);
  const Preference& preference = Of<Preference>(preference_handle);
  const emulated::Sizes sizes = emulated::SizesOf(operation, a, b);
  if ((operation.b == CUBLAS_OP_N ? b.rows : b.columns) != sizes.k) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  for (const auto& handle : {c_handle, d_handle}) {
    const Layout& result = Of<Layout>(handle);
    if (result.rows != sizes.m || result.columns != sizes.n) {
      return CUBLAS_STATUS_INVALID_VALUE;
    }
  }
  const bool scaled =
      operation.a_scale != nullptr || operation.b_scale != nullptr;
  const bool allowed =
      emulated::IsFp8(a.type) || emulated::IsFp8(b.type)
          ? emulated::Fp8Allowed(operation, a, b, Of<Layout>(d_handle), sizes,
                                 preference)
          : a.type == b.type && operation.fast == 0 && !scaled;
  if (!allowed) return CUBLAS_STATUS_NOT_SUPPORTED;
  Chosen chosen = {.mark = emulated::kMark,
                   .workspace = preference.workspace,
                   .m = sizes.m,
                   .n = sizes.n,
                   .k = sizes.k,
                   .scaled = scaled};
  std::copy(std::begin(preference.alignments), std::end(preference.alignments),
            chosen.alignments);
  results[0] = {};
  std::memcpy(&results[0].algo, &chosen, sizeof(chosen));
  results[0].workspaceSize = preference.workspace;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(
    const cublasLtMatmulAlgo_t*, cublasLtMatmulAlgoConfigAttributes_t,
    void* value, size_t bytes, size_t* written) {
  std::memset(value, 0, bytes);
  *written = bytes;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t, cublasLtMatmulDesc_t operation_handle, const void* alpha,
    const void* a_at, cublasLtMatrixLayout_t a, const void* b_at,
    cublasLtMatrixLayout_t b, const void* beta, const void* c_at,
    cublasLtMatrixLayout_t c, void* d_at, cublasLtMatrixLayout_t d,
    const cublasLtMatmulAlgo_t* algorithm, void* workspace,
    size_t workspace_bytes, cudaStream_t stream) {
  emulated::Product product = {Of<Operation>(operation_handle),
                               Of<Layout>(a),
                               Of<Layout>(b),
                               Of<Layout>(c),
                               Of<Layout>(d),
                               a_at,
                               b_at,
                               c_at,
                               d_at,
                               *static_cast<const float*>(alpha),
                               *static_cast<const float*>(beta),
                               {}};
  const Operation& operation = product.operation;
  product.sizes = emulated::SizesOf(operation, product.a, product.b);
  const auto& [m, n, k] = product.sizes;
  Chosen chosen;
  std::memcpy(&chosen, algorithm, sizeof(chosen));
  const bool scaled =
      operation.a_scale != nullptr || operation.b_scale != nullptr;
  if (chosen.mark != emulated::kMark || chosen.m != m || chosen.n != n ||
      chosen.k != k || chosen.scaled != scaled) {
    Violation("cublasLt: the algorithm was chosen for another product");
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (workspace_bytes < chosen.workspace) return CUBLAS_STATUS_INVALID_VALUE;
  emulated::Check("A", a_at, product.a.bytes(), chosen.alignments[0]);
  emulated::Check("B", b_at, product.b.bytes(), chosen.alignments[1]);
  emulated::Check("C", c_at, product.c.bytes(), chosen.alignments[2]);
  emulated::Check("D", d_at, product.d.bytes(), chosen.alignments[3]);
  emulated::Check("the workspace", workspace, workspace_bytes, 256);
  for (const float* scale : {operation.a_scale, operation.b_scale}) {
    // As an H100 does, whatever the manual says of it.
    if (reinterpret_cast<uintptr_t>(scale) % 16 != 0) {
      return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (scale != nullptr) emulated::Check("a scale", scale, 4, 16);
  }
  if (operation.bias != nullptr) {
    const bool wide = product.d.type == CUDA_R_32F;
    emulated::Check("the bias", operation.bias, m * (wide ? 4 : 2), 16);
  }
  const double rate = emulated::IsFp8(product.a.type) ? 1.4e15
                      : product.a.type == CUDA_R_16BF ? 7e14
                                                      : 5e13;
  const double flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) *
                       static_cast<double>(k);
  emulated::Queue(stream, "cublasLt", 2e-6 + flops / rate,
                  [product, workspace, workspace_bytes] {
                    // It may be used, and so holds nothing afterwards.
                    std::memset(workspace, 0xff,
                                std::min<size_t>(workspace_bytes, 4096));
                    emulated::Multiply(product);
                    return true;
                  });
  return CUBLAS_STATUS_SUCCESS;
}

}  // extern "C"
