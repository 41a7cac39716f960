// A matrix of bytes to its transpose.
#include "kernels/cuda/byte_tile.cuh"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = kTileThreads;
constexpr int kAcross = kVectorBytes;

// Sizes that kTileStep divides, addresses of 16 bytes.
__global__ void TransposeTilesKernel(const uint8_t* from, uint8_t* to,
                                     int64_t rows, int64_t columns) {
  auto& tile = Shared<AlignedWords<kTileWords>>();
  const int64_t tiles_across = (columns + kTile - 1) / kTile;
  const int64_t first_row = blockIdx.x / tiles_across * kTile;
  const int64_t first_column = blockIdx.x % tiles_across * kTile;
  constexpr int kPlaces = kTileWords / kAcross;
  for (int index = static_cast<int>(threadIdx.x); index < kPlaces;
       index += kTileThreads) {
    const TilePlace place = PlaceOf<kAcross>(index);
    const int64_t row = first_row + place.down;
    const int64_t column = first_column + place.across;
    if (row >= rows || column >= columns) continue;
    uint32_t words[4][kAcross / 4];
#pragma unroll
    for (int down = 0; down < 4; ++down) {
      const uint4 whole = *reinterpret_cast<const uint4*>(
          from + (row + down) * columns + column);
      words[down][0] = whole.x;
      words[down][1] = whole.y;
      words[down][2] = whole.z;
      words[down][3] = whole.w;
    }
    PutTurned<kAcross>(words, place, tile.words);
  }
  __syncthreads();
  WriteTurned<kAcross>(tile.words, first_row, first_column, rows, columns, to);
}

// Any size and address; no product takes what this makes.
__global__ void TransposeKernel(const uint8_t* from, uint8_t* to, int64_t rows,
                                int64_t columns) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index >= rows * columns) return;
  to[index] = from[index % rows * columns + index / rows];
}

}  // namespace

PwStatus TransposeBytes(cudaStream_t queue, int64_t rows, int64_t columns,
                        const void* from, void* to) {
  const bool tiles = rows % kTileStep == 0 && columns % kTileStep == 0 &&
                     AlignmentOf(from, kVectorBytes) == kVectorBytes &&
                     AlignmentOf(to, kVectorBytes) == kVectorBytes;
  const int64_t blocks =
      tiles ? CeilDivide(rows, kTile) * CeilDivide(columns, kTile)
            : CeilDivide(rows * columns, kThreads);
  Launch(tiles ? TransposeTilesKernel : TransposeKernel,
         static_cast<unsigned>(blocks), kTileThreads, 0, queue,
         static_cast<const uint8_t*>(from), static_cast<uint8_t*>(to), rows,
         columns);
  return Launched("transpose");
}

}  // namespace pipewright::cuda
