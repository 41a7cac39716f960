// What the kernels should compute, in float64 and as plainly as it can be
// said: each operation a loop over its formula, no tiles, no shared code with
// kernels/. Only the standard library and kernels/, so that it builds on a GPU
// machine.
#ifndef PIPEWRIGHT_TESTS_SUPPORT_KERNEL_REFERENCE_H_
#define PIPEWRIGHT_TESTS_SUPPORT_KERNEL_REFERENCE_H_

#include <stdint.h>

#include <functional>
#include <string>
#include <vector>

#include "kernels/kernels.h"
#include "kernels/layer.h"

namespace pipewright {

using Values = std::vector<double>;

// y[tokens, outputs] = x w^T + bias (may be empty).
Values RefLinear(const Values& x, const Values& w, const Values& bias,
                 int64_t tokens, int64_t inputs, int64_t outputs);
Values RefLinearInput(const Values& dy, const Values& w, int64_t tokens,
                      int64_t inputs, int64_t outputs);
Values RefLinearWeight(const Values& x, const Values& dy, int64_t tokens,
                       int64_t inputs, int64_t outputs);
Values RefColumnSums(const Values& dy, int64_t rows, int64_t columns);

// beta empty: RMS norm.
Values RefNorm(PwNorm norm, const Values& x, const Values& gamma,
               const Values& beta, double epsilon);
struct RefNormGradients {
  Values x;
  Values gamma;
  Values beta;
};
RefNormGradients RefNormBackward(PwNorm norm, const Values& dy, const Values& x,
                                 const Values& gamma, double epsilon);

// Dense: the strides of `shape` are not looked at.
struct RefAttention {
  Values o;
  Values lse;
};
RefAttention RefAttentionForward(const PwAttention& shape, const Values& q,
                                 const Values& k, const Values& v);
struct RefAttentionGradients {
  Values q;
  Values k;
  Values v;
};
RefAttentionGradients RefAttentionBackward(const PwAttention& shape,
                                           const Values& q, const Values& k,
                                           const Values& v, const Values& d_o);

// x: [batch, tokens, stride], the first heads * head_dim of each row turned.
Values RefRotary(Values x, int64_t batch, int64_t tokens, int64_t heads,
                 int64_t head_dim, int64_t stride, int64_t first, double base,
                 bool inverse);

Values RefActivation(PwActivation activation, const Values& x, int64_t rows,
                     int64_t columns);
Values RefActivationBackward(PwActivation activation, const Values& x,
                             const Values& dy, int64_t rows, int64_t columns);

// Losses; `lse` may be null.
Values RefCrossEntropy(const Values& logits,
                       const std::vector<int32_t>& targets, Values* lse);
Values RefCrossEntropyBackward(const Values& logits,
                               const std::vector<int32_t>& targets,
                               double scale);

// Operands of a layer's linear layers; weight [outputs, inputs].
enum class RefOperand { kInput, kWeight, kGradient };
// The mixture of experts of `tokens` rows of x, without norm and residual: each
// token and each of its experts by itself, the weights by way of the softmax
// over all experts. Empty shared matrices: no shared experts.
struct RefExpertWeights {
  Values router;
  Values up;
  Values down;
  Values shared_up;
  Values shared_down;
};
struct RefExpertsOutput {
  Values y;
  Values dx;  // from here on only with dy
  RefExpertWeights gradients;
};
RefExpertsOutput RefExperts(const PwModel& model, int64_t tokens,
                            const Values& x, const RefExpertWeights& weights,
                            const Values* dy);
// The experts of one token, numbered `token`, by its logits.
std::vector<int32_t> RefChosen(const Values& logits, int64_t token,
                               int32_t chosen, bool balanced);

// One part of one device, forward and backward, sequences unsliced.
struct RefPartInput {
  Values weights;  // as pw_part_tensors lays them out
  Values input;
  std::vector<int32_t> ids;
  Values output_gradient;
  double loss_scale = 1;
  // What the products of a linear layer of PW_LAYER ("qkv") take for an operand
  // that is `exact`; empty: that. Biases' gradients are sums of exact ones.
  std::function<Values(const std::string& name, RefOperand operand,
                       const Values& exact)>
      stored;
};
struct RefPartOutput {
  Values output;
  Values losses;
  Values input_gradient;
  Values gradients;  // as the weights
};
// `backward` false: output and losses only.
RefPartOutput RefPart(const PwModel& model, const PwWork& work, PwPart part,
                      const RefPartInput& in, bool backward);

}  // namespace pipewright

#endif  // PIPEWRIGHT_TESTS_SUPPORT_KERNEL_REFERENCE_H_
