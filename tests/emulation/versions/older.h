// Included before a source by versions.sh: the headers of CUDA that are here,
// with the version macros of an older one, and without the names that came
// after it. OLDER is 12040 for 12.4.
//
// Sources: "Release Notes" of CUDA 12.5 to 13.0 and the changes listed in the
// manuals of cuBLAS.
#include <cublasLt.h>
#include <cublas_v2.h>
#include <cuda.h>
// With its C++ part, which uses newer names.
#include <cuda_runtime.h>

#undef CUDA_VERSION
#undef CUDART_VERSION
#undef CUBLAS_VERSION
#undef CUBLAS_VER_MAJOR
#undef CUBLAS_VER_MINOR
#define CUDA_VERSION OLDER
#define CUDART_VERSION OLDER
#define CUBLAS_VERSION (OLDER / 1000 * 10000 + OLDER % 1000 / 10 * 100)
#define CUBLAS_VER_MAJOR (OLDER / 1000)
#define CUBLAS_VER_MINOR (OLDER % 1000 / 10)

#if OLDER < 12050
#pragma GCC poison cublasGemmGroupedBatchedEx cublasSgemmGroupedBatched
#pragma GCC poison cublasDgemmGroupedBatched cudaGetDriverEntryPointByVersion
#endif
#if OLDER < 12080
#pragma GCC poison cudaStreamGetDevice cuStreamGetDevice cudaMemcpyBatchAsync
#pragma GCC poison cudaMemcpy3DBatchAsync
#pragma GCC poison CUBLASLT_MATMUL_DESC_A_SCALE_MODE
#pragma GCC poison CUBLASLT_MATMUL_DESC_B_SCALE_MODE
#pragma GCC poison CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0
#pragma GCC poison CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3
#pragma GCC poison CUDA_R_4F_E2M1 CUDA_R_8F_UE8M0
#endif
#if OLDER < 12090
#pragma GCC poison CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F
#pragma GCC poison CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F
#pragma GCC poison CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F
#endif
#if OLDER < 13000
#pragma GCC poison cudaMemLocation cudaMemPrefetchBatchAsync
#pragma GCC poison cudaMemDiscardBatchAsync cuCtxCreate_v4
#endif
