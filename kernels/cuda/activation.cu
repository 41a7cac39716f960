// Activations and rotary embedding.
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;

// GELU's tanh form: 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
constexpr float kGeluScale = 0.7978845608028654f;
constexpr float kGeluCube = 0.044715f;

__device__ inline float Gelu(float x) {
  const float inner = kGeluScale * (x + kGeluCube * x * x * x);
  return 0.5f * x * (1.0f + tanhf(inner));
}

__device__ inline float GeluSlope(float x) {
  const float inner = kGeluScale * (x + kGeluCube * x * x * x);
  const float bend = tanhf(inner);
  const float inner_slope = kGeluScale * (1.0f + 3.0f * kGeluCube * x * x);
  return 0.5f * (1.0f + bend) + 0.5f * x * (1.0f - bend * bend) * inner_slope;
}

template <typename T>
__device__ inline float Sigmoid(float x) {
  return 1.0f / (1.0f + Exp<T>(-x));
}

template <typename T, int kWidth>
__global__ void GeluForwardKernel(const T* x, T* y, int64_t vectors) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= vectors) return;
  float values[kWidth];
  Load(x + index * kWidth, values);
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) values[lane] = Gelu(values[lane]);
  Store(values, y + index * kWidth);
}

template <typename T, int kWidth>
__global__ void GeluBackwardKernel(const T* x, const T* dy, T* dx,
                                   int64_t vectors) {
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= vectors) return;
  float values[kWidth];
  float gradients[kWidth];
  Load(x + index * kWidth, values);
  Load(dy + index * kWidth, gradients);
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    gradients[lane] *= GeluSlope(values[lane]);
  }
  Store(gradients, dx + index * kWidth);
}

template <typename T, int kWidth>
__global__ void SwigluForwardKernel(const T* x, T* y, int64_t rows,
                                    int64_t columns) {
  const int64_t vectors = columns / kWidth;
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= rows * vectors) return;
  const int64_t row = index / vectors;
  const int64_t column = index % vectors * kWidth;
  const T* first = x + row * 2 * columns + column;
  float gate[kWidth];
  float up[kWidth];
  Load(first, gate);
  Load(first + columns, up);
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    gate[lane] *= Sigmoid<T>(gate[lane]) * up[lane];
  }
  Store(gate, y + row * columns + column);
}

template <typename T, int kWidth>
__global__ void SwigluBackwardKernel(const T* x, const T* dy, T* dx,
                                     int64_t rows, int64_t columns) {
  const int64_t vectors = columns / kWidth;
  const int64_t index =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (index >= rows * vectors) return;
  const int64_t row = index / vectors;
  const int64_t column = index % vectors * kWidth;
  const int64_t first = row * 2 * columns + column;
  float gate[kWidth];
  float up[kWidth];
  float gradient[kWidth];
  Load(x + first, gate);
  Load(x + first + columns, up);
  Load(dy + row * columns + column, gradient);
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    const float value = gate[lane];
    const float sigmoid = Sigmoid<T>(value);
    gate[lane] =
        gradient[lane] * up[lane] * sigmoid * (1.0f + value * (1.0f - sigmoid));
    up[lane] = gradient[lane] * value * sigmoid;
  }
  Store(gate, dx + first);
  Store(up, dx + first + columns);
}

// One block a row. Angles are computed once a row, in double: position times
// frequency reaches 10^5 and more, where fp32 has lost the fraction.
template <typename T, int kWidth>
__global__ void RotaryKernel(T* x, int64_t tokens, int64_t heads, int64_t half,
                             int64_t stride, int64_t first, double log2_base,
                             float direction) {
  float* angles = DynamicShared();
  float* cosines = angles;
  float* sines = angles + half;
  const int64_t row = blockIdx.x;
  const double position = static_cast<double>(first + row % tokens);
  for (int64_t pair = threadIdx.x; pair < half; pair += blockDim.x) {
    const double frequency = exp2(-static_cast<double>(pair) /
                                  static_cast<double>(half) * log2_base);
    double sine;
    double cosine;
    sincos(position * frequency, &sine, &cosine);
    cosines[pair] = static_cast<float>(cosine);
    sines[pair] = direction * static_cast<float>(sine);
  }
  __syncthreads();
  const int64_t vectors = half / kWidth;
  for (int64_t item = threadIdx.x; item < heads * vectors; item += blockDim.x) {
    const int64_t pair = item % vectors * kWidth;
    T* low = x + row * stride + item / vectors * 2 * half + pair;
    T* high = low + half;
    float left[kWidth];
    float right[kWidth];
    float cosine[kWidth];
    float sine[kWidth];
    Load(low, left);
    Load(high, right);
    LoadFloats(cosines + pair, cosine);
    LoadFloats(sines + pair, sine);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
      const float a = left[lane];
      const float b = right[lane];
      left[lane] = a * cosine[lane] - b * sine[lane];
      right[lane] = b * cosine[lane] + a * sine[lane];
    }
    Store(left, low);
    Store(right, high);
  }
}

}  // namespace

PwStatus ActivationForward(PwDevice* device, PwStream* stream,
                           PwActivation activation, PwType type, int64_t rows,
                           int64_t columns, const void* x, void* y) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (rows == 0 || columns == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(Dispatch(type, {columns}, {x, y}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    constexpr int kWidth = decltype(shape)::kWidth;
    const int64_t vectors = rows * columns / kWidth;
    const unsigned blocks = BlocksFor(vectors, kThreads);
    if (activation == PW_GELU) {
      Launch(GeluForwardKernel<T, kWidth>, blocks, kThreads, 0, queue,
             static_cast<const T*>(x), static_cast<T*>(y), vectors);
    } else {
      Launch(SwigluForwardKernel<T, kWidth>, blocks, kThreads, 0, queue,
             static_cast<const T*>(x), static_cast<T*>(y), rows, columns);
    }
  }));
  return Launched("activation_forward");
}

PwStatus ActivationBackward(PwDevice* device, PwStream* stream,
                            PwActivation activation, PwType type, int64_t rows,
                            int64_t columns, const void* x, const void* dy,
                            void* dx) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (rows == 0 || columns == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(Dispatch(type, {columns}, {x, dy, dx}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    constexpr int kWidth = decltype(shape)::kWidth;
    const int64_t vectors = rows * columns / kWidth;
    const unsigned blocks = BlocksFor(vectors, kThreads);
    if (activation == PW_GELU) {
      Launch(GeluBackwardKernel<T, kWidth>, blocks, kThreads, 0, queue,
             static_cast<const T*>(x), static_cast<const T*>(dy),
             static_cast<T*>(dx), vectors);
    } else {
      Launch(SwigluBackwardKernel<T, kWidth>, blocks, kThreads, 0, queue,
             static_cast<const T*>(x), static_cast<const T*>(dy),
             static_cast<T*>(dx), rows, columns);
    }
  }));
  return Launched("activation_backward");
}

PwStatus Rotary(PwDevice* device, PwStream* stream, PwType type, int64_t batch,
                int64_t tokens, int64_t heads, int64_t head_dim, int64_t stride,
                int64_t first, float base, int32_t inverse, void* x) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (head_dim % 2 != 0) {
    return Fail(PW_INVALID, "rotary: head_dim must be even");
  }
  if (batch * tokens == 0 || heads == 0) return PW_OK;
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  const int64_t half = head_dim / 2;
  const double log2_base = log2(static_cast<double>(base));
  PW_RETURN_IF_FAILED(Dispatch(type, {half, stride}, {x}, [&](auto shape) {
    using T = typename decltype(shape)::Type;
    constexpr int kWidth = decltype(shape)::kWidth;
    const int threads = ThreadsForRow(heads * half / kWidth, kThreads);
    const size_t shared = static_cast<size_t>(head_dim) * sizeof(float);
    Launch(RotaryKernel<T, kWidth>, static_cast<unsigned>(batch * tokens),
           threads, shared, queue, static_cast<T*>(x), tokens, heads, half,
           stride, first, log2_base, inverse != 0 ? -1.0f : 1.0f);
  }));
  return Launched("rotary");
}

}  // namespace pipewright::cuda
