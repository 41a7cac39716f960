// Kinds of layers as text: the letters of Megatron-LM's hybrid pattern
// (megatron/core/models/hybrid/hybrid_layer_allocation.py, d98e8a64).
//
// M Mamba-2, G gated delta, * attention (with latent attention: +), - a dense
// feed-forward part, E experts; each a layer of its own. Two in brackets are
// one layer, a mixer and what follows it: (GE). A number repeats what stands
// behind it, several in square brackets: 12[3(GE)(*E)].
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/model/model.h"

namespace pipewright {

// Error: kInvalidArgument with the position and what is allowed there, without
// a field.
absl::StatusOr<std::vector<LayerKind>> LayerKindsOf(absl::string_view text,
                                                    bool has_mla);

// The pattern of `kinds`, nothing repeated by a number.
std::string LettersOf(const std::vector<LayerKind>& kinds);

}  // namespace pipewright
