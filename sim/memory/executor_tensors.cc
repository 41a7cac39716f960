#include "sim/memory/executor_tensors.h"

#include <algorithm>
#include <utility>

namespace pipewright {
namespace {

// What tensors are rounded up to: weights to so many elements, all others to
// so many bytes.
constexpr int64_t kWeightElements = 32;
constexpr int64_t kTensorBytes = 256;

constexpr int64_t kLinears = 4;  // in a layer: qkv, out, up, down

// On a CPU attention goes by strips of queries, whose rows of scores begin on
// cache lines (16 floats) and are not a power of two apart.
constexpr int64_t kStripQueries = 128;
constexpr int64_t kScoreRow = 16;
// On a GPU norms add up their gains' gradients in as many parts as there are
// blocks at a time: two a multiprocessor, of which an H100 has 132.
constexpr int64_t kNormParts = 2 * 132;

int64_t RoundUp(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

struct Sizes {
  Sizes(const ModelSpec& model, const TrainingSpec& training)
      : gated(model.gated),
        batch(training.microbatch_size),
        sequence(training.sequence),
        slice(training.sequence / training.slices),
        sliced(training.slices > 1),
        tokens(batch * slice),
        hidden(model.hidden),
        heads(model.heads),
        head_dim(model.HeadDim()),
        queries(model.heads * head_dim),
        kv(2 * model.kv_heads * head_dim),
        qkv(queries + kv),
        ffn(model.ffn_hidden),
        up((model.gated ? 2 : 1) * ffn),
        vocabulary(model.vocabulary),
        experts(model.experts),
        expert_rows(tokens * model.experts_per_token),
        expert_ffn(model.expert_ffn_hidden),
        expert_up((model.gated ? 2 : 1) * expert_ffn),
        shared_ffn(model.shared_ffn_hidden),
        shared_up((model.gated ? 2 : 1) * shared_ffn) {}

  bool gated;  // RMS norm, no biases, rotary positions; else GPT's layer
  int64_t batch;
  int64_t sequence;
  int64_t slice;  // tokens of it
  bool sliced;
  int64_t tokens;
  int64_t hidden;
  int64_t heads;
  int64_t head_dim;
  int64_t queries;  // columns
  int64_t kv;       // columns of keys and values
  int64_t qkv;
  int64_t ffn;
  int64_t up;  // columns of gate and up
  int64_t vocabulary;
  int64_t experts;
  int64_t expert_rows;
  int64_t expert_ffn;
  int64_t expert_up;
  int64_t shared_ffn;
  int64_t shared_up;
};

// The list of a part's tensors as it is written down.
class TensorList {
 public:
  TensorList(const Sizes& sizes, const ExecutorSpec& spec)
      : sizes_(sizes), spec_(spec) {}

  void Add(TensorSpan span, const char* name, int64_t elements,
           int64_t element_bytes) {
    if (elements > 0) tensors_.push_back({name, span, elements, element_bytes});
  }
  // Adds a tensor of the type of weights and activations.
  void Add(TensorSpan span, const char* name, int64_t elements) {
    Add(span, name, elements, spec_.type_bytes);
  }
  // What a linear layer's W reads.
  void AddOperand(TensorSpan span, const char* name, int64_t elements) {
    Add(span, name, elements, spec_.fp8 ? 1 : spec_.type_bytes);
  }
  void AddNorm(const char* name) {
    Add(TensorSpan::kWeight, name, sizes_.hidden);
    if (!sizes_.gated) Add(TensorSpan::kWeight, name, sizes_.hidden);
  }
  void AddLinear(const char* name, int64_t outputs, int64_t inputs, bool bias) {
    Add(TensorSpan::kWeight, name, outputs * inputs);
    if (bias) Add(TensorSpan::kWeight, name, outputs);
  }
  // Both layouts of a matrix, as products read it forward and backward.
  void AddQuantized(const char* name, int64_t outputs, int64_t inputs) {
    if (!spec_.fp8) return;
    Add(TensorSpan::kQuantizedWeight, name, outputs * inputs, 1);
    Add(TensorSpan::kQuantizedWeight, name, outputs * inputs, 1);
  }
  std::vector<ExecutorTensor> Take() { return std::move(tensors_); }

 private:
  const Sizes& sizes_;
  const ExecutorSpec& spec_;
  std::vector<ExecutorTensor> tensors_;
};

int64_t NormWorkspace(const Sizes& sizes, const ExecutorSpec& spec) {
  const int64_t parts = spec.gpu ? std::min(sizes.tokens, kNormParts) : 1;
  return 2 * parts * sizes.hidden * kFloat;
}

// Workspace of the backward, which needs more: a strip's scores and their
// gradients, and two numbers a query. In 16 bits a CPU also widens a head: its
// queries and output, keys and values, and the gradients of all four. A GPU's
// own kernel has a number for each query and head.
int64_t AttentionWorkspace(const Sizes& sizes, const ExecutorSpec& spec) {
  const int64_t sequences = sizes.sliced ? 1 : sizes.batch;
  // Packed samples run one after the other.
  const bool packed = spec.longest_sample > 0;
  const int64_t keys = packed ? spec.longest_sample : sizes.sequence;
  const int64_t slice = packed ? spec.longest_sample : sizes.slice;
  if (spec.gpu) return sequences * sizes.heads * slice * kFloat;
  const int64_t strip = std::min(slice, kStripQueries);
  int64_t floats =
      2 * strip * (RoundUp(keys, kScoreRow) + kScoreRow) + 2 * strip;
  if (spec.type_bytes == 2) {
    floats += 2 * 2 * (slice + keys) * sizes.head_dim;
  }
  return floats * kFloat;
}

void AddAttention(const Sizes& s, const ExecutorSpec& spec, TensorList* list) {
  using enum TensorSpan;
  list->AddNorm("norm 1");
  list->AddLinear("qkv", s.qkv, s.hidden, !s.gated);
  list->AddLinear("output", s.hidden, s.queries, !s.gated);
  list->AddQuantized("qkv", s.qkv, s.hidden);
  list->AddQuantized("output", s.hidden, s.queries);
  list->AddNorm("norm 2");

  list->Add(kForwardToBackward, "input of the layer", s.tokens * s.hidden);
  list->Add(kForwardToBackward, "input of norm 2", s.tokens * s.hidden);
  list->Add(kForwardToBackward, "mean and deviation 1", 2 * s.tokens, kFloat);
  list->Add(kForwardToBackward, "mean and deviation 2", 2 * s.tokens, kFloat);
  list->Add(kForwardToBackward, "queries, keys, values", s.tokens * s.qkv);
  list->Add(kForwardToBackward, "log-sum-exp", s.tokens * s.heads, kFloat);
  list->AddOperand(kForwardToWeight, "input of qkv", s.tokens * s.hidden);
  list->AddOperand(kForwardToWeight, "input of output", s.tokens * s.queries);
  list->AddOperand(kForwardToWeight, "input of up", s.tokens * s.hidden);
  if (spec.fp8) {
    // Attention's backward reads its output unrounded.
    list->Add(kForwardToBackward, "output of attention", s.tokens * s.queries);
  }
  list->AddOperand(kBackwardToWeight, "gradient of qkv", s.tokens * s.qkv);
  list->AddOperand(kBackwardToWeight, "gradient of output",
                   s.tokens * s.hidden);
  if (s.sliced) {
    for (const char* const name : {"keys and values", "their gradients"}) {
      list->Add(kMicrobatch, name, s.batch * s.sequence * s.kv);
    }
    list->Add(kPass, "keys and values of a sequence", s.sequence * s.kv);
  }
  list->Add(kPass, "a hidden state", s.tokens * s.hidden);
  list->Add(kPass, "inside norms and attention",
            std::max(NormWorkspace(s, spec), AttentionWorkspace(s, spec)), 1);
}

void AddDense(const Sizes& s, const ExecutorSpec& spec, TensorList* list) {
  using enum TensorSpan;
  list->AddLinear("up", s.up, s.hidden, !s.gated);
  list->AddLinear("down", s.hidden, s.ffn, !s.gated);
  list->AddQuantized("up", s.up, s.hidden);
  list->AddQuantized("down", s.hidden, s.ffn);
  list->Add(kForwardToBackward, "input of the activation", s.tokens * s.up);
  list->AddOperand(kForwardToWeight, "input of down", s.tokens * s.ffn);
  list->AddOperand(kBackwardToWeight, "gradient of up", s.tokens * s.up);
  list->AddOperand(kBackwardToWeight, "gradient of down", s.tokens * s.hidden);
  list->Add(kPass, "a wide state", s.tokens * std::max(s.ffn, s.queries));
  if (!spec.fp8) return;
  list->Add(kQuantizedWeight, "scales", kLinears, kFloat);
  list->Add(kForwardToWeight, "scales of inputs", kLinears, kFloat);
  list->Add(kBackwardToWeight, "scales of gradients", kLinears, kFloat);
  if (!s.gated) {
    list->Add(kBackwardToWeight, "gradients of biases",
              s.qkv + s.hidden + s.up + s.hidden, kFloat);
  }
  const int64_t widest = std::max(s.up, s.qkv);
  list->Add(kPass, "an operand in fp8",
            s.tokens * std::max({widest, s.hidden, s.queries}), 1);
  list->Add(kPass, "a gradient to round", s.tokens * widest);
  list->Add(kPass, "gradient in the middle", s.tokens * s.hidden);
}

void AddExperts(const Sizes& s, TensorList* list) {
  using enum TensorSpan;
  const int64_t rows = s.expert_rows;
  list->AddLinear("router", s.experts, s.hidden, false);
  list->AddLinear("experts up", s.experts * s.expert_up, s.hidden, false);
  list->AddLinear("experts down", s.experts * s.hidden, s.expert_ffn, false);
  list->AddLinear("shared up", s.shared_up, s.hidden, false);
  list->AddLinear("shared down", s.hidden, s.shared_ffn, false);
  list->Add(kForwardToBackward, "input of the activation", rows * s.expert_up);
  list->Add(kForwardToBackward, "outputs of experts", rows * s.hidden);
  list->Add(kForwardToBackward, "chosen experts", rows, kIndex);
  list->Add(kForwardToBackward, "their weights", rows, kFloat);
  list->Add(kForwardToBackward, "places of rows", rows, kIndex);
  list->Add(kForwardToBackward, "input of the shared activation",
            s.tokens * s.shared_up);
  list->Add(kForwardToWeight, "input of experts down", rows * s.expert_ffn);
  list->Add(kForwardToWeight, "input of experts up", rows * s.hidden);
  list->Add(kForwardToWeight, "rows of each expert", s.experts, kIndex);
  list->Add(kForwardToWeight, "input of shared down", s.tokens * s.shared_ffn);
  list->Add(kBackwardToWeight, "gradient of experts up", rows * s.expert_up);
  list->Add(kBackwardToWeight, "gradient of experts down", rows * s.hidden);
  list->Add(kBackwardToWeight, "gradient of the router", s.tokens * s.experts);
  list->Add(kBackwardToWeight, "gradient of shared up", s.tokens * s.shared_up);
  if (s.shared_ffn > 0) {
    list->Add(kBackwardToWeight, "gradient of shared down",
              s.tokens * s.hidden);
  }
  list->Add(kPass, "a wide state",
            std::max({s.tokens * s.queries, rows * s.expert_ffn,
                      s.tokens * s.shared_ffn}));
  list->Add(kPass, "a row of each choice", rows * s.hidden);
  list->Add(kPass, "logits of the router", s.tokens * s.experts);
  list->Add(kPass, "gradients of weights", rows, kFloat);
}

void AddEmbedding(const Sizes& s, const ExecutorSpec& spec, TensorList* list) {
  list->Add(TensorSpan::kTable, "words", s.vocabulary * s.hidden);
  if (!s.gated) {
    list->AddLinear("positions",
                    spec.positions > 0 ? spec.positions : s.sequence, s.hidden,
                    false);
  }
  list->Add(TensorSpan::kSource, "tokens", s.tokens, kIndex);
  list->Add(TensorSpan::kBackwardToWeight, "gradient of the output",
            s.tokens * s.hidden);
  list->Add(TensorSpan::kPass, "a hidden state", s.tokens * s.hidden);
}

void AddHead(const Sizes& s, const ExecutorSpec& spec, TensorList* list) {
  using enum TensorSpan;
  list->AddNorm("last norm");
  list->Add(kTable, "output", s.vocabulary * s.hidden);
  list->Add(kForwardToBackward, "input of the norm", s.tokens * s.hidden);
  list->Add(kForwardToBackward, "mean and deviation", 2 * s.tokens, kFloat);
  list->Add(kForwardToBackward, "log-sum-exp", s.tokens, kFloat);
  list->Add(kForwardToWeight, "input of output", s.tokens * s.hidden);
  // They become their own gradient in place.
  list->Add(kForwardToWeight, "logits", s.tokens * s.vocabulary);
  list->Add(kPass, "a hidden state", s.tokens * s.hidden);
  list->Add(kPass, "inside the norm", NormWorkspace(s, spec), 1);
}

}  // namespace

std::vector<ExecutorTensor> ExecutorTensors(const ModelSpec& model,
                                            const TrainingSpec& training,
                                            const ExecutorSpec& spec,
                                            BlockKind kind) {
  const Sizes sizes(model, training);
  TensorList list(sizes, spec);
  switch (kind) {
    case BlockKind::kEmbedding:
      AddEmbedding(sizes, spec, &list);
      break;
    case BlockKind::kHead:
      AddHead(sizes, spec, &list);
      break;
    default:
      AddAttention(sizes, spec, &list);
      if (kind == BlockKind::kExpertLayer) {
        AddExperts(sizes, &list);
      } else {
        AddDense(sizes, spec, &list);
      }
  }
  return list.Take();
}

ExecutorPart ExecutorPartOf(const std::vector<ExecutorTensor>& tensors) {
  ExecutorPart part;
  for (const ExecutorTensor& tensor : tensors) {
    const int64_t bytes =
        RoundUp(tensor.elements * tensor.element_bytes, kTensorBytes);
    switch (tensor.span) {
      case TensorSpan::kWeight:
        part.parameters += RoundUp(tensor.elements, kWeightElements);
        break;
      case TensorSpan::kTable:
        part.table += RoundUp(tensor.elements, kWeightElements);
        part.parameters += RoundUp(tensor.elements, kWeightElements);
        break;
      case TensorSpan::kQuantizedWeight:
        part.quantized += bytes;
        break;
      case TensorSpan::kSource:  // a block by itself
        part.source += tensor.elements * tensor.element_bytes;
        break;
      case TensorSpan::kForwardToBackward:
        part.saved += bytes;
        break;
      case TensorSpan::kForwardToWeight:
        part.inputs += bytes;
        break;
      case TensorSpan::kBackwardToWeight:
        part.grads += bytes;
        break;
      case TensorSpan::kMicrobatch:
        part.microbatch += bytes;
        break;
      case TensorSpan::kPass:
        part.workspace += bytes;
        break;
    }
  }
  return part;
}

}  // namespace pipewright
