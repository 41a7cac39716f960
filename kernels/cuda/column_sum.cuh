// The second stage of sums over rows, in a fixed order. For .cu files.
#ifndef PIPEWRIGHT_KERNELS_CUDA_COLUMN_SUM_CUH_
#define PIPEWRIGHT_KERNELS_CUDA_COLUMN_SUM_CUH_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/kernels.h"

namespace pipewright::cuda {

// y[columns] += sum of partial[rows, columns]; with `second`, which may be
// NULL, the same of it and of what stands behind that.
PwStatus AddColumnSums(cudaStream_t queue, const float* partial, int64_t rows,
                       int64_t columns, float* y, float* second);

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_COLUMN_SUM_CUH_
