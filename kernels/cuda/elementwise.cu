#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;

template <typename T, int kWidth>
__global__ void AddKernel(const T* a, const T* b, T* y, int64_t vectors) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= vectors) return;
  float left[kWidth];
  float right[kWidth];
  Load(a + index * kWidth, left);
  Load(b + index * kWidth, right);
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) left[lane] += right[lane];
  Store(left, y + index * kWidth);
}

// Elements are moved, not read: Unit is 16, 4, 2 or 1 bytes.
template <typename Unit>
__global__ void CopyRowsKernel(const Unit* from, int64_t from_stride, Unit* to,
                               int64_t to_stride, int64_t rows,
                               int64_t columns) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= rows * columns) return;
  const int64_t row = index / columns;
  const int64_t column = index % columns;
  to[row * to_stride + column] = from[row * from_stride + column];
}

template <typename Unit>
void LaunchCopyRows(cudaStream_t queue, int64_t rows, int64_t row_bytes,
                    const void* from, int64_t from_bytes, void* to,
                    int64_t to_bytes) {
  constexpr int64_t kBytes = sizeof(Unit);
  const int64_t columns = row_bytes / kBytes;
  Launch(CopyRowsKernel<Unit>, BlocksFor(rows * columns, kThreads), kThreads, 0,
         queue, static_cast<const Unit*>(from), from_bytes / kBytes,
         static_cast<Unit*>(to), to_bytes / kBytes, rows, columns);
}

}  // namespace

PwStatus Add(PwDevice* device, PwStream* stream, PwType type, int64_t count,
             const void* a, const void* b, void* y) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (count == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(Dispatch(type, {count}, {a, b, y}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    constexpr int kWidth = decltype(shape)::kWidth;
    const int64_t vectors = count / kWidth;
    Launch(AddKernel<T, kWidth>, BlocksFor(vectors, kThreads), kThreads, 0,
           queue, static_cast<const T*>(a), static_cast<const T*>(b),
           static_cast<T*>(y), vectors);
  }));
  return Launched("add");
}

PwStatus Accumulate(PwDevice* device, PwStream* stream, int64_t count,
                    const float* x, float* y) {
  return Add(device, stream, PW_FP32, count, x, y, y);
}

PwStatus CopyRows(PwDevice* device, PwStream* stream, PwType type, int64_t rows,
                  int64_t columns, const void* from, int64_t from_stride,
                  void* to, int64_t to_stride) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (rows == 0 || columns == 0) return PW_OK;
  const int64_t element = type == PW_FP32 ? 4 : type == PW_BF16 ? 2 : 1;
  const int64_t row_bytes = columns * element;
  const int64_t from_bytes = from_stride * element;
  const int64_t to_bytes = to_stride * element;
  const bool wide = (row_bytes | from_bytes | to_bytes) % kVectorBytes == 0 &&
                    AlignmentOf(from, kVectorBytes) == kVectorBytes &&
                    AlignmentOf(to, kVectorBytes) == kVectorBytes;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  const auto launch = [&](auto unit) {
    LaunchCopyRows<decltype(unit)>(queue, rows, row_bytes, from, from_bytes, to,
                                   to_bytes);
  };
  if (wide) {
    launch(uint4());
  } else if (element == 4) {
    launch(uint32_t());
  } else if (element == 2) {
    launch(uint16_t());
  } else {
    launch(uint8_t());
  }
  return Launched("copy_rows");
}

}  // namespace pipewright::cuda
