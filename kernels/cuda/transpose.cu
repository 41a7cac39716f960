#include "kernels/cuda/gemm.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kTile = 64;
constexpr int kRowsAtOnce = 4;

// A tile goes through shared memory, so that both sides are read and written
// along their rows.
__global__ void TransposeKernel(const uint8_t* from, uint8_t* to, int64_t rows,
                                int64_t columns) {
  auto& tile = Shared<uint8_t[kTile][kTile + 4]>();
  const int64_t first_row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t first_column = static_cast<int64_t>(blockIdx.x) * kTile;
  for (int down = static_cast<int>(threadIdx.y); down < kTile;
       down += kRowsAtOnce) {
    const int64_t row = first_row + down;
    const int64_t column = first_column + threadIdx.x;
    if (row < rows && column < columns) {
      tile[down][threadIdx.x] = from[row * columns + column];
    }
  }
  __syncthreads();
  for (int down = static_cast<int>(threadIdx.y); down < kTile;
       down += kRowsAtOnce) {
    const int64_t column = first_column + down;
    const int64_t row = first_row + threadIdx.x;
    if (row < rows && column < columns) {
      to[column * rows + row] = tile[threadIdx.x][down];
    }
  }
}

}  // namespace

PwStatus TransposeBytes(cudaStream_t queue, int64_t rows, int64_t columns,
                        const void* from, void* to) {
  const dim3 grid(BlocksFor(columns, kTile), BlocksFor(rows, kTile));
  // The grid's second dimension has 16 bits.
  if (grid.y > 65535) {
    return Fail(PW_INVALID, "an fp8 matrix of more than 4 million rows");
  }
  Launch(TransposeKernel, grid, dim3(kTile, kRowsAtOnce), 0, queue,
         static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to), rows,
         columns);
  return Launched("transpose");
}

}  // namespace pipewright::cuda
