// Products of matrices in memory, as the libraries of GEMMs compute them.
#ifndef PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_GEMM_H_
#define PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_GEMM_H_

#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <library_types.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace emulated {

inline float Read(const void* at, cudaDataType type, int64_t index) {
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float*>(at)[index];
    case CUDA_R_16BF:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(at)[index]);
    case CUDA_R_8F_E4M3:
    case CUDA_R_8F_E5M2:
      return __half2float(__half(__nv_cvt_fp8_to_halfraw(
          static_cast<const __nv_fp8_storage_t*>(at)[index],
          type == CUDA_R_8F_E4M3 ? __NV_E4M3 : __NV_E5M2)));
    default:
      abort();
  }
}

inline void Write(void* at, cudaDataType type, int64_t index, float value) {
  if (type == CUDA_R_32F) {
    static_cast<float*>(at)[index] = value;
  } else {
    static_cast<__nv_bfloat16*>(at)[index] = __float2bfloat16_rn(value);
  }
}

// A column-major matrix as cuBLAS has it.
struct Matrix {
  const void* at = nullptr;
  cudaDataType type = CUDA_R_32F;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t leading = 0;
};

// In fp32, [other, inner]: the side that is summed over lies together.
inline std::vector<float> Packed(const Matrix& matrix, bool inner_is_rows) {
  const int64_t inner = inner_is_rows ? matrix.rows : matrix.columns;
  std::vector<float> packed(static_cast<size_t>(matrix.rows * matrix.columns));
  for (int64_t column = 0; column < matrix.columns; ++column) {
    for (int64_t row = 0; row < matrix.rows; ++row) {
      const int64_t to =
          inner_is_rows ? column * inner + row : row * inner + column;
      packed[static_cast<size_t>(to)] =
          Read(matrix.at, matrix.type, column * matrix.leading + row);
    }
  }
  return packed;
}

// Partial sums of eight lanes, so that the compiler makes vectors of them.
inline float Dot(const float* a, const float* b, int64_t count) {
  constexpr int kLanes = 8;
  float sums[kLanes] = {};
  int64_t index = 0;
  for (; index + kLanes <= count; index += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) {
      sums[lane] += a[index + lane] * b[index + lane];
    }
  }
  float total = 0;
  for (; index < count; ++index) total += a[index] * b[index];
  for (const float sum : sums) total += sum;
  return total;
}

}  // namespace emulated

#endif  // PIPEWRIGHT_TESTS_EMULATION_LIBRARIES_GEMM_H_
