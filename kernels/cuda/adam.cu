// AdamW in one pass over memory: 16 bytes a parameter read, 12 written, and 2
// more for the bf16 weights; and where it will be in some steps.
#include "kernels/cuda/functions.h"
#include "kernels/cuda/vector.cuh"

namespace pipewright::cuda {
namespace {

constexpr int kThreads = 256;

struct Step {
  PwAdam adam;
  float correction1;  // 1 / (1 - beta1^step)
  float correction2;
};

// Where the moments move a weight.
__device__ float Moved(float weight, float first, float second, float rate,
                       const Step& step) {
  const float mean = first * step.correction1;
  const float deviation = sqrtf(second * step.correction2) + step.adam.epsilon;
  return weight - rate * (mean / deviation + step.adam.weight_decay * weight);
}

template <typename T, int kWidth>
__global__ void AdamKernel(Step step, const float* gradients, float* master,
                           float* moment1, float* moment2, T* weights,
                           int64_t vectors) {
  const int64_t vector =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (vector >= vectors) return;
  const int64_t index = vector * kWidth;
  const PwAdam& adam = step.adam;
  float gradient[kWidth];
  float weight[kWidth];
  float first[kWidth];
  float second[kWidth];
  LoadFloats(gradients + index, gradient);
  LoadFloats(master + index, weight);
  LoadFloats(moment1 + index, first);
  LoadFloats(moment2 + index, second);
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    const float scaled = gradient[lane] * adam.gradient_scale;
    first[lane] = adam.beta1 * first[lane] + (1.0f - adam.beta1) * scaled;
    second[lane] =
        adam.beta2 * second[lane] + (1.0f - adam.beta2) * scaled * scaled;
    weight[lane] = Moved(weight[lane], first[lane], second[lane],
                         adam.learning_rate, step);
  }
  StoreFloats(weight, master + index);
  StoreFloats(first, moment1 + index);
  StoreFloats(second, moment2 + index);
  if (weights != nullptr) Store(weight, weights + index);
}

// 12 bytes a parameter read, 2 or 4 written.
template <typename T, int kWidth>
__global__ void PredictKernel(Step step, float rate, const float* master,
                              const float* moment1, const float* moment2,
                              T* predicted, int64_t vectors) {
  const int64_t vector =
      static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (vector >= vectors) return;
  const int64_t index = vector * kWidth;
  float weight[kWidth];
  float first[kWidth];
  float second[kWidth];
  LoadFloats(master + index, weight);
  LoadFloats(moment1 + index, first);
  LoadFloats(moment2 + index, second);
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    weight[lane] = Moved(weight[lane], first[lane], second[lane], rate, step);
  }
  Store(weight, predicted + index);
}

float Correction(float beta, int64_t step) {
  return static_cast<float>(
      1.0 / (1.0 - pow(static_cast<double>(beta), static_cast<double>(step))));
}

}  // namespace

PwStatus Adam(PwDevice* device, PwStream* stream, const PwAdam* adam,
              PwType type, int64_t count, const float* gradients, float* master,
              float* moment1, float* moment2, void* weights) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (adam->step < 1) return Fail(PW_INVALID, "adam: step counts from 1");
  if (count == 0) return PW_OK;
  const Step step = {*adam, Correction(adam->beta1, adam->step),
                     Correction(adam->beta2, adam->step)};
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(
      Dispatch(type, {count}, {gradients, master, moment1, moment2, weights},
               [&](auto shape) {
                 using T = typename decltype(shape)::Type;
                 constexpr int kWidth = decltype(shape)::kBesideFloats;
                 const int64_t vectors = count / kWidth;
                 Launch(AdamKernel<T, kWidth>, BlocksFor(vectors, kThreads),
                        kThreads, 0, queue, step, gradients, master, moment1,
                        moment2, static_cast<T*>(weights), vectors);
               }));
  return Launched("adam");
}

PwStatus Predict(PwDevice* device, PwStream* stream, const PwAdam* adam,
                 int64_t steps, PwType type, int64_t count, const float* master,
                 const float* moment1, const float* moment2, void* predicted) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (adam->step < 0 || steps < 0) {
    return Fail(PW_INVALID, "predict: steps count from 0");
  }
  if (count == 0) return PW_OK;
  Step step = {*adam, 0, 0};
  float rate = 0;
  if (adam->step > 0) {
    step.correction1 = Correction(adam->beta1, adam->step);
    step.correction2 = Correction(adam->beta2, adam->step);
    rate = static_cast<float>(steps) * adam->learning_rate;
  }
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(Dispatch(
      type, {count}, {master, moment1, moment2, predicted}, [&](auto shape) {
        using T = typename decltype(shape)::Type;
        constexpr int kWidth = decltype(shape)::kBesideFloats;
        const int64_t vectors = count / kWidth;
        Launch(PredictKernel<T, kWidth>, BlocksFor(vectors, kThreads), kThreads,
               0, queue, step, rate, master, moment1, moment2,
               static_cast<T*>(predicted), vectors);
      }));
  return Launched("predict");
}

}  // namespace pipewright::cuda
