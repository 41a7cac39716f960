// What the parts of the inventory have in common: sizes on one device, and
// the ops that come again and again. For sim/model/ops*.cc only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/model/ops.h"
#include "sim/model/precision.h"

namespace pipewright {

inline double AsDouble(int64_t value) { return static_cast<double>(value); }

// Rows of the busiest device's experts over the mean.
// Natural routing: so much more than the mean the busiest expert has, between
// 0.72 and 0.52 with a loss for balance (MaxVio of models of 1 and 3 billion
// parameters, arXiv 2408.15664, table 2, from memory). Experts of a device are
// taken to vary by themselves. [assumption]
inline constexpr double kBusiestExpert = 0.62;
double ExpertLoad(const ModelSpec& model, const TrainingSpec& training);

// Time of a sum of rows by number, with atomics, over that of its traffic: 542
// us for 32768 rows of 2048 in bf16 against 89.5 us (experiments/torch_layers,
// index_add of a layer of qwen3-30b-a3b). [measured]
inline constexpr double kScatteredSum = 6.06;

class OpsBuilder {
 public:
  // How a linear layer is split over tensor parallelism.
  enum class Split {
    kColumn,      // outputs; input whole, gathered where sequence parallel
    kRow,         // inputs; the result is summed over the group
    kReplicated,  // not at all
  };

  OpsBuilder(const ModelSpec& model, const TrainingSpec& training,
             bool is_frozen);

  const ModelSpec& model() const { return model_; }
  const TrainingSpec& training() const { return training_; }
  double tokens() const { return tokens_; }
  // Tokens of a device where norms and residuals work.
  double residual_tokens() const { return residual_tokens_; }
  double tp() const { return training_.tp; }

  // Query and key-value heads of one device.
  double Heads() const;
  double KvHeads() const;

  // A norm over `width`, which keeps its input; `feeds_linear`: its output
  // too, for the W of what follows.
  ModelOp& Norm(const std::string& name, double width, double tokens,
                bool feeds_linear);

  // What the attention or feed-forward part begins with: its norm, or where
  // the model has none there, the residual stream as it is.
  void Input(const char* name);
  // The norm of its result, if the model has any.
  void PostNorm(const std::string& name);

  // inputs x outputs of the whole layer, before the split. `adapted`: low-rank
  // adapters stand beside it where the model has any. Its input is kept
  // by the op before it.
  ModelOp& Linear(const std::string& name, double inputs, double outputs,
                  Split split, bool bias, bool adapted = true);

  // Adds `bytes` read and written per token of the residual stream, and the
  // dropout mask where there is one.
  ModelOp& Residual(const std::string& name);

  ModelOp& Elementwise(const std::string& name, double forward_bytes,
                       double backward_bytes);

  // Sets the layer's window; 0: attention looks back on all tokens.
  void set_window(int64_t tokens) { window_ = AsDouble(tokens); }
  double window() const { return window_; }
  // All ops so far are of that part.
  void MarkAll(OpPart part);

  // Does the W of a linear layer, or of adapters beside it, read its input?
  bool KeepsInputs(bool adapted) const {
    return !is_frozen_ || (adapted && model_.lora_rank > 0);
  }
  size_t size() const { return ops_.size(); }
  ModelOp& At(size_t index) { return ops_[index]; }
  // The ops from `first` up to `end` are `module`, and the backward of the last
  // one so far needs them. What the training runs again of them keeps the input
  // of the module, of a norm, and of attention. `end` 0: all so far.
  void MarkModule(RecomputeModule module, size_t first, size_t end = 0);

  ModelOp& Add(ModelOp op);
  std::vector<ModelOp> Take() && { return std::move(ops_); }

  // Bytes of an activation, bf16. [numerics, bytes]
  static constexpr double kElement = 2;
  // Bytes of an element of a linear layer's operand.
  double operand_bytes() const { return OperandBytes(precision()); }
  // Precision of linear layers here, and of what is cast before it is gathered.
  Precision precision() const {
    return is_head_ ? Precision::kBf16 : training_.precision;
  }
  bool is_frozen() const { return is_frozen_; }
  // The head's products are no modules of Transformer Engine: 16 bit.
  void set_is_head() { is_head_ = true; }

  void FillGemm(ModelOp& op) const;

 private:
  void AddTensorComms(Split split, ModelOp& op) const;
  void BraidTensorComms(ModelOp& op) const;
  void AddLora(const ModelOp& linear);

  const ModelSpec& model_;
  const TrainingSpec& training_;
  bool is_frozen_;
  bool is_head_ = false;
  double tokens_;
  double residual_tokens_;
  double window_ = 0;
  std::vector<ModelOp> ops_;
};

// The parts of a layer; each begins with its norm and ends with its residual.
void AddAttention(OpsBuilder& builder);
void AddLatentAttention(OpsBuilder& builder);
void AddMamba(OpsBuilder& builder);
void AddDelta(OpsBuilder& builder);
void AddFeedForward(OpsBuilder& builder, double ffn_hidden,
                    const std::string& prefix);
void AddExperts(OpsBuilder& builder);

// Sets what Recompute::kOpSelective does to the ops of a whole layer.
void MarkSelective(const ModelSpec& model, std::vector<ModelOp>& ops);

}  // namespace pipewright
