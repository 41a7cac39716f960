// fp8 with a scale from the tensor's largest magnitude, along its rows and
// transposed at once: one read for the magnitude, one for both.
#include <cuda_fp8.h>

#include <cfloat>

#include "kernels/cuda/byte_tile.cuh"
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;
// Blocks of the first read: enough to fill any GPU, few enough that the atomics
// at their ends do not queue up.
constexpr int64_t kMostBlocks = 2048;

constexpr float kLargestE4m3 = 448.0f;
constexpr float kLargestE5m2 = 57344.0f;

// Magnitudes are ordered as their bits are; fmaxf leaves NaNs out.
template <typename T, int kWidth>
__global__ void LargestKernel(const T* x, int64_t vectors, uint32_t* largest) {
  float most = 0;
  const int64_t step = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t index =
           static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
       index < vectors; index += step) {
    float values[kWidth];
    Load(x + index * kWidth, values);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      most = fmaxf(most, fabsf(values[lane]));
    }
  }
  most = WarpReduce(most, Max());
  auto& shared = Shared<float[kThreads / kWarp]>();
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int warp = 1; warp < kThreads / kWarp; ++warp) {
    most = fmaxf(most, shared[warp]);
  }
  atomicMax(largest, __float_as_uint(most));
}

// As kernels.h has it for PwKernels.quantize.
__device__ float FactorOf(uint32_t largest, float limit) {
  const float magnitude = __uint_as_float(largest);
  if (!(magnitude > 0)) return 1;
  return fminf(__fdiv_rn(limit, magnitude), FLT_MAX);
}

template <bool kE5m2>
__device__ uint8_t CodeOf(float value) {
  return __nv_cvt_float_to_fp8(value, __NV_SATFINITE,
                               kE5m2 ? __NV_E5M2 : __NV_E4M3);
}

// Sizes that kTileStep divides, addresses of 16 bytes. A thread reads 16 bytes
// of each of four rows.
template <typename T, bool kE5m2>
__global__ void QuantizeTilesKernel(const T* x, int64_t rows, int64_t columns,
                                    const uint32_t* largest, uint8_t* to,
                                    uint8_t* to_transposed, float* scale) {
  constexpr int kAcross = kVectorBytes / sizeof(T);
  auto& tile = Shared<AlignedWords<kTileWords>>();
  const float factor = FactorOf(*largest, kE5m2 ? kLargestE5m2 : kLargestE4m3);
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale = __fdiv_rn(1.0f, factor);
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
    float values[4][kAcross];
#pragma unroll
    for (int down = 0; down < 4; ++down) {
      Load(x + (row + down) * columns + column, values[down]);
    }
    uint32_t codes[4][kAcross / 4] = {};
#pragma unroll
    for (int down = 0; down < 4; ++down) {
#pragma unroll
      for (int lane = 0; lane < kAcross; ++lane) {
        codes[down][lane / 4] |=
            static_cast<uint32_t>(CodeOf<kE5m2>(values[down][lane] * factor))
            << (lane % 4 * 8);
      }
      if (to == nullptr) continue;
      uint8_t* place_of_row = to + (row + down) * columns + column;
      if constexpr (kAcross == 8) {
        *reinterpret_cast<uint2*>(place_of_row) =
            make_uint2(codes[down][0], codes[down][1]);
      } else {
        *reinterpret_cast<uint32_t*>(place_of_row) = codes[down][0];
      }
    }
    PutTurned<kAcross>(codes, place, tile.words);
  }
  if (to_transposed == nullptr) return;
  __syncthreads();
  WriteTurned<kAcross>(tile.words, first_row, first_column, rows, columns,
                       to_transposed);
}

// Any size and address; no product takes what this makes.
template <typename T, bool kE5m2>
__global__ void QuantizeKernel(const T* x, int64_t rows, int64_t columns,
                               const uint32_t* largest, uint8_t* to,
                               uint8_t* to_transposed, float* scale) {
  const float factor = FactorOf(*largest, kE5m2 ? kLargestE5m2 : kLargestE4m3);
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (index == 0) *scale = __fdiv_rn(1.0f, factor);
  if (index >= rows * columns) return;
  const uint8_t code = CodeOf<kE5m2>(ToFloat(x[index]) * factor);
  if (to != nullptr) to[index] = code;
  if (to_transposed != nullptr) {
    to_transposed[index % columns * rows + index / columns] = code;
  }
}

template <typename T, bool kE5m2>
void LaunchQuantize(cudaStream_t queue, bool tiles, int64_t rows,
                    int64_t columns, const void* x, const uint32_t* largest,
                    void* to, void* to_transposed, float* scale) {
  const T* from = static_cast<const T*>(x);
  uint8_t* along = static_cast<uint8_t*>(to);
  uint8_t* across = static_cast<uint8_t*>(to_transposed);
  if (tiles) {
    const int64_t blocks = CeilDivide(rows, kTile) * CeilDivide(columns, kTile);
    Launch(QuantizeTilesKernel<T, kE5m2>, static_cast<unsigned>(blocks),
           kTileThreads, 0, queue, from, rows, columns, largest, along, across,
           scale);
  } else {
    Launch(QuantizeKernel<T, kE5m2>, BlocksFor(rows * columns, kThreads),
           kThreads, 0, queue, from, rows, columns, largest, along, across,
           scale);
  }
}

}  // namespace

PwStatus Quantize(PwDevice* device, PwStream* stream, PwType type, int64_t rows,
                  int64_t columns, const void* x, int32_t e5m2, void* to,
                  void* to_transposed, float* scale) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (rows < 1 || columns < 1) {
    return Fail(PW_INVALID, "quantize: rows and columns must be at least 1");
  }
  PwStream* on = StreamOf(device, stream);
  void* memory = nullptr;
  PW_RETURN_IF_FAILED(on->reduction.Get(sizeof(uint32_t), &memory));
  uint32_t* largest = static_cast<uint32_t*>(memory);
  PW_CUDA(cudaMemsetAsync(largest, 0, sizeof(uint32_t), on->stream));
  const int64_t count = rows * columns;
  PW_RETURN_IF_FAILED(Dispatch(type, {count}, {x}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    constexpr int kWidth = decltype(shape)::kWidth;
    const int64_t vectors = count / kWidth;
    const int64_t needed = CeilDivide(vectors, kThreads);
    const int64_t blocks = needed < kMostBlocks ? needed : kMostBlocks;
    Launch(LargestKernel<T, kWidth>, static_cast<unsigned>(blocks), kThreads, 0,
           on->stream, static_cast<const T*>(x), vectors, largest);
  }));
  PW_RETURN_IF_FAILED(Launched("quantize"));
  bool tiles = rows % kTileStep == 0 && columns % kTileStep == 0;
  for (const void* address : {x, static_cast<const void*>(to),
                              static_cast<const void*>(to_transposed)}) {
    tiles = tiles && AlignmentOf(address, kVectorBytes) == kVectorBytes;
  }
  PW_RETURN_IF_FAILED(Dispatch(type, {}, {}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    if (e5m2 != 0) {
      LaunchQuantize<T, true>(on->stream, tiles, rows, columns, x, largest, to,
                              to_transposed, scale);
    } else {
      LaunchQuantize<T, false>(on->stream, tiles, rows, columns, x, largest, to,
                               to_transposed, scale);
    }
  }));
  return Launched("quantize");
}

}  // namespace pipewright::cuda
