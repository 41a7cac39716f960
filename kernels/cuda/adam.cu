// AdamW in one pass over memory: 16 bytes a parameter read, 12 written, and 2
// more for the bf16 weights.
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
    const float mean = first[lane] * step.correction1;
    const float deviation =
        sqrtf(second[lane] * step.correction2) + adam.epsilon;
    weight[lane] -= adam.learning_rate *
                    (mean / deviation + adam.weight_decay * weight[lane]);
  }
  StoreFloats(weight, master + index);
  StoreFloats(first, moment1 + index);
  StoreFloats(second, moment2 + index);
  if (weights != nullptr) Store(weight, weights + index);
}

}  // namespace

PwStatus Adam(PwDevice* device, PwStream* stream, const PwAdam* adam,
              PwType type, int64_t count, const float* gradients, float* master,
              float* moment1, float* moment2, void* weights) {
  PW_RETURN_IF_FAILED(Enter(device));
  if (adam->step < 1) return Fail(PW_INVALID, "adam: step counts from 1");
  if (count == 0) return PW_OK;
  const double steps = static_cast<double>(adam->step);
  const Step step = {
      *adam,
      static_cast<float>(1.0 /
                         (1.0 - pow(static_cast<double>(adam->beta1), steps))),
      static_cast<float>(1.0 /
                         (1.0 - pow(static_cast<double>(adam->beta2), steps)))};
  const cudaStream_t queue = StreamOf(device, stream)->stream;
  PW_RETURN_IF_FAILED(
      Dispatch(type, {count}, {gradients, master, moment1, moment2, weights},
               [&](auto shape) {
                 using T = typename decltype(shape)::Type;
                 constexpr int kWidth = decltype(shape)::kWidth;
                 const int64_t vectors = count / kWidth;
                 AdamKernel<T, kWidth>
                     <<<BlocksFor(vectors, kThreads), kThreads, 0, queue>>>(
                         step, gradients, master, moment1, moment2,
                         static_cast<T*>(weights), vectors);
               }));
  return Launched("adam");
}

}  // namespace pipewright::cuda
