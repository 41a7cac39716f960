// A square of bytes that a block turns: both sides are read and written along
// their rows, 16 bytes a thread where the source has bytes. For .cu files.
//
// A word holds four rows of one column, and a column of the tile is 32 words in
// a row, so that what is written after the turn is read as 16 bytes. Words of
// neighbouring columns are shifted against each other: no two lanes of a warp
// meet in a bank, neither while they write nor while they read.
#ifndef PIPEWRIGHT_KERNELS_CUDA_BYTE_TILE_CUH_
#define PIPEWRIGHT_KERNELS_CUDA_BYTE_TILE_CUH_

#include <cstdint>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {

// Rows and columns of a tile, threads of the block that turns it.
constexpr int kTile = 128;
constexpr int kTileThreads = 256;
// Rows and columns that tiles take: a thread writes 16 bytes of a column.
constexpr int kTileStep = 16;
constexpr int kTileWords = kTile * kTile / 4;

// Shared memory that is read as 16 bytes.
template <int kWords>
struct AlignedWords {
  alignas(kVectorBytes) uint32_t words[kWords];
};

// Columns `across` to across + kAcross - 1 of rows `down` to down + 3.
struct TilePlace {
  int down;
  int across;
};

// The lanes of a warp stand on 8 groups of columns, side by side, and on 4
// groups of rows. `index` counts from 0 to 128 * 128 / 4 / kAcross - 1.
template <int kAcross>
__device__ inline TilePlace PlaceOf(int index) {
  constexpr int kGroups = 8;
  constexpr int kParts = kTile / (kGroups * kAcross);
  const int group = index % kGroups;
  const int quad = index / kGroups % 4;
  const int warp = index / kWarp;
  return {(warp / kParts * 4 + quad) * 4,
          (warp % kParts * kGroups + group) * kAcross};
}

// Where the word of rows 4 quad to 4 quad + 3 of a column is.
template <int kAcross>
__device__ inline int WordOf(int column, int quad) {
  return column * (kTile / 4) + (quad ^ (column / kAcross % 8 * 4));
}

// Four columns of four rows: byte j of rows[i] becomes byte i of columns[j].
__device__ inline void Turn(const uint32_t (&rows)[4], uint32_t (&columns)[4]) {
  const uint32_t low_01 = __byte_perm(rows[0], rows[1], 0x5140);
  const uint32_t low_23 = __byte_perm(rows[2], rows[3], 0x5140);
  const uint32_t high_01 = __byte_perm(rows[0], rows[1], 0x7362);
  const uint32_t high_23 = __byte_perm(rows[2], rows[3], 0x7362);
  columns[0] = __byte_perm(low_01, low_23, 0x5410);
  columns[1] = __byte_perm(low_01, low_23, 0x7632);
  columns[2] = __byte_perm(high_01, high_23, 0x5410);
  columns[3] = __byte_perm(high_01, high_23, 0x7632);
}

// Puts four rows of kAcross bytes, in words, into the tile.
template <int kAcross>
__device__ inline void PutTurned(const uint32_t (&rows)[4][kAcross / 4],
                                 const TilePlace& place, uint32_t* tile) {
#pragma unroll
  for (int word = 0; word < kAcross / 4; ++word) {
    const uint32_t four[4] = {rows[0][word], rows[1][word], rows[2][word],
                              rows[3][word]};
    uint32_t columns[4];
    Turn(four, columns);
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      tile[WordOf<kAcross>(place.across + 4 * word + lane, place.down / 4)] =
          columns[lane];
    }
  }
}

// Writes the tile at (first_row, first_column) of a matrix to its transpose.
// Behind a barrier. Sizes are multiples of kTileStep, `to` is aligned to it.
template <int kAcross>
__device__ inline void WriteTurned(const uint32_t* tile, int64_t first_row,
                                   int64_t first_column, int64_t rows,
                                   int64_t columns, uint8_t* to) {
  constexpr int kChunks = kTile / kTileStep;
  for (int index = static_cast<int>(threadIdx.x); index < kTile * kChunks;
       index += kTileThreads) {
    const int across = index / kChunks;
    const int quad = index % kChunks * 4;
    const int64_t row = first_row + 4 * quad;
    const int64_t column = first_column + across;
    if (row >= rows || column >= columns) continue;
    *reinterpret_cast<uint4*>(to + column * rows + row) =
        *reinterpret_cast<const uint4*>(tile + WordOf<kAcross>(across, quad));
  }
}

}  // namespace pipewright::cuda

#endif  // PIPEWRIGHT_KERNELS_CUDA_BYTE_TILE_CUH_
