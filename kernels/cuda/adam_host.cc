// AdamW on the host's cores. One loop without branches, compiled for several
// instruction sets; the loader takes the best that the processor has.
#include <cmath>

#include "kernels/cuda/arithmetic.h"
#include "kernels/cuda/device.h"
#include "kernels/cuda/functions.h"

namespace pipewright::cuda {
namespace {

struct Step {
  float learning_rate;
  float beta1;
  float beta2;
  float epsilon;
  float decay;  // 1 - learning rate * weight decay
  float correction1;
  float correction2;
  float gradient_scale;
};

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define PW_EVERY_PROCESSOR \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PW_EVERY_PROCESSOR
#endif

PW_EVERY_PROCESSOR
void Update(const Step& step, int64_t count, const float* __restrict gradients,
            float* __restrict master, float* __restrict moment1,
            float* __restrict moment2) {
  const float rest1 = 1.0f - step.beta1;
  const float rest2 = 1.0f - step.beta2;
  for (int64_t index = 0; index < count; ++index) {
    const float gradient = gradients[index] * step.gradient_scale;
    const float first = step.beta1 * moment1[index] + rest1 * gradient;
    const float second =
        step.beta2 * moment2[index] + rest2 * gradient * gradient;
    const float deviation = std::sqrt(second * step.correction2) + step.epsilon;
    moment1[index] = first;
    moment2[index] = second;
    master[index] = master[index] * step.decay -
                    step.learning_rate * (first * step.correction1) / deviation;
  }
}

// Weights are finite or the run is lost: no test for "not a number" here.
PW_EVERY_PROCESSOR
void Round(int64_t count, const float* __restrict master,
           uint16_t* __restrict weights) {
  for (int64_t index = 0; index < count; ++index) {
    const uint32_t bits = FloatBits(master[index]);
    weights[index] =
        static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
  }
}

}  // namespace

PwStatus AdamHost(const PwAdam* adam, PwType type, int64_t count,
                  const float* gradients, float* master, float* moment1,
                  float* moment2, void* weights) {
  if (adam->step < 1) return Fail(PW_INVALID, "adam_host: step counts from 1");
  if (type != PW_FP32 && type != PW_BF16) {
    return Fail(PW_INVALID, "adam_host: weights in fp32 or bf16 only");
  }
  const double steps = static_cast<double>(adam->step);
  const Step step = {
      .learning_rate = adam->learning_rate,
      .beta1 = adam->beta1,
      .beta2 = adam->beta2,
      .epsilon = adam->epsilon,
      .decay = 1.0f - adam->learning_rate * adam->weight_decay,
      .correction1 = static_cast<float>(
          1.0 / (1.0 - std::pow(static_cast<double>(adam->beta1), steps))),
      .correction2 = static_cast<float>(
          1.0 / (1.0 - std::pow(static_cast<double>(adam->beta2), steps))),
      .gradient_scale = adam->gradient_scale,
  };
  // In parts that stay in the first-level cache, so that the second loop
  // reads nothing from memory.
  constexpr int64_t kPart = 1024;
  for (int64_t first = 0; first < count; first += kPart) {
    const int64_t part = count - first < kPart ? count - first : kPart;
    Update(step, part, gradients + first, master + first, moment1 + first,
           moment2 + first);
    if (weights == nullptr) continue;
    if (type == PW_BF16) {
      Round(part, master + first, static_cast<uint16_t*>(weights) + first);
    } else {
      memcpy(static_cast<float*>(weights) + first, master + first,
             static_cast<size_t>(part) * sizeof(float));
    }
  }
  return PW_OK;
}

}  // namespace pipewright::cuda
