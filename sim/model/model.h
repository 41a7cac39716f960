// The shape of a decoder-only transformer and what follows from it: its
// parameters, and how they spread over pipeline stages. No times, no
// activations.
//
// A layer: attention (queries, keys, values, output; kv_heads below heads:
// grouped queries), feed-forward (two matrices, three where gated), two norms
// of one vector each. No biases, no position table. Around the layers: the
// embedding, a last norm, the output head.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

struct ModelSpec {
  std::string name;
  std::string source;
  int64_t layers = 0;
  int64_t hidden = 0;
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t ffn_hidden = 0;
  bool gated = false;
  int64_t vocabulary = 0;
  int64_t sequence = 0;  // tokens of a sample
  bool tied_embeddings = false;

  double LayerParameters() const;
  // Of the model; tied embeddings count once.
  double Parameters() const;
  // Layers spread evenly; `stages` divides them. The embedding is on the
  // first stage, the last norm and the head on the last one. Tied embeddings
  // on two stages are stored twice, as in Megatron-LM.
  double StageParameters(int stage, int stages) const;
};

// Sizes at least 1, heads that divide hidden, kv_heads that divide heads.
// Error: kInvalidArgument naming "model.FIELD".
absl::Status CheckModel(const ModelSpec& model);

// Sorted by name.
const std::vector<ModelSpec>& AllModels();
// Error: kInvalidArgument naming the nearest one.
absl::StatusOr<ModelSpec> FindModel(absl::string_view name);

}  // namespace pipewright
