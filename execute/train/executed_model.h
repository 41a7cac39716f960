// The model that is really trained: a GPT or Llama stack with random weights
// and random tokens, all of it a function of a seed, cut into pipeline stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "kernels/layer.h"

namespace pipewright {

struct StagePart {
  PwPart part = PW_LAYER;
  int layer = -1;  // in the model, of layers
};

// Does it read tokens, or targets?
inline bool TakesTokens(PwPart part) {
  return part == PW_EMBEDDING || part == PW_HEAD;
}

struct ExecutedModel {
  PwModel shape{};
  int64_t batch = 1;     // sequences of a microbatch
  int64_t sequence = 0;  // tokens of each
  int slices = 1;        // that a sequence is cut into, alike
  // Lengths of packed samples, [microbatch of an iteration, replica after
  // replica]; samples do not see each other. `batch` is 1 then and `sequence`
  // the tokens of the longest microbatch. Empty: all microbatches have `batch`
  // sequences of `sequence` tokens.
  std::vector<std::vector<int64_t>> lengths;
  std::vector<std::vector<StagePart>> stages;
  uint64_t seed = 1;
  // Every forward is run again in front of its backward, nothing but a stage's
  // input is kept. Else those are of which the order has an R.
  bool recompute = false;

  // True if the head's output matrix is the embedding's table (`tied` of shape)
  // and the two are on different ranks: the head's stage then has a copy of its
  // own behind its parts. Both sum their gradients and step alike. Else there
  // is one table, in the embedding's stage.
  bool copies_table = false;

  // Forwards under way keep the weights that they have used while the
  // optimizer makes new ones.
  bool keeps_versions = false;
  // Steps that the weights of a microbatch are behind those of the step before
  // its own (PipeDream-2BW: 1).
  int weight_delay = 0;

  PwAdam adam{.learning_rate = 1e-3f,
              .beta1 = 0.9f,
              .beta2 = 0.95f,
              .epsilon = 1e-8f,
              .weight_decay = 0.1f,
              .step = 0,
              .gradient_scale = 1};
  // Gradients whose norm is larger are scaled down to it; 0: never.
  double clip_norm = 0;
  // Iterations whose step is made to fail its validation: their limit is
  // kFailingLimit of their norm.
  static constexpr double kFailingLimit = 1e-3;
  std::vector<int> failing_steps;
  // What the norm of the gradients of a step is scaled down to where it is
  // `norm`; `clip` of a step that does not fail.
  double NormLimit(int64_t step, double norm, double clip) const {
    const bool fails = std::find(failing_steps.begin(), failing_steps.end(),
                                 step) != failing_steps.end();
    return fails ? norm * kFailingLimit : clip;
  }

  int num_stages() const { return static_cast<int>(stages.size()); }
  int64_t slice_tokens() const { return sequence / slices; }
  PwWork WorkOf(int slice) const {
    return {.batch = batch,
            .sequence = sequence,
            .slice_first = slice * slice_tokens(),
            .slice_tokens = slice_tokens()};
  }
  // What the kernels run one after the other for a slice of a microbatch.
  std::vector<PwWork> WorksOf(int64_t sample, int slice) const;
  // Tokens of a slice of a microbatch.
  int64_t TokensOf(int64_t sample) const;
  // Bytes of one weight or activation.
  size_t type_bytes() const { return shape.type == PW_FP32 ? 4 : 2; }
  // Bytes of so many weights; in fp8, what passes need of it comes behind them.
  size_t WeightBytes(int64_t parameters) const {
    constexpr size_t kAlignment = 256;  // what a GPU's widest loads like
    return (static_cast<size_t>(parameters) * type_bytes() + kAlignment - 1) /
           kAlignment * kAlignment;
  }
  // Bytes of an activation of one slice.
  size_t BoundaryBytes() const;
  // Elements of a table, as it lies in a stage's parameters.
  int64_t TableElements() const;
  bool HoldsCopyOfTable(int stage) const {
    return copies_table && stage + 1 == num_stages();
  }
  // Seed of a part's weights, wherever the part lives.
  uint64_t SeedOf(const StagePart& part) const;
  // The tokens of one slice, or, shifted by one, its targets: [batch *
  // slice_tokens]. `sample` numbers the microbatches of the whole run.
  void FillTokens(int64_t sample, int slice, bool targets, int32_t* ids) const;
};

// Error: kInvalidArgument for a model or a cut that the kernels cannot run.
absl::Status CheckExecutedModel(const ExecutedModel& model);

// Layers spread evenly, the embedding on the first, the head on the last.
std::vector<std::vector<StagePart>> EvenStages(int layers, int stages);

}  // namespace pipewright
