// A Hugging Face config.json as a ModelSpec. Reads the keys that decide
// shapes and parameters; all others (names of tokens, rotary settings, ...)
// are passed over. Reads text, no files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/model/model.h"

namespace pipewright {

// The values of "model_type" that are known, sorted.
std::vector<std::string> HuggingFaceTypes();

// `source_name` is put in front of messages and becomes the model's source.
// Keys with a default in the transformers library may be left out. The
// sequence is max_position_embeddings, which is the longest one; a training
// run mostly sets strategy.sequence. attention_bias without mlp_bias counts no
// bias on the output projection (hidden values a layer).
// Errors: kInvalidArgument for text that is no JSON object, an unknown
// model_type (with the known ones), a missing key (with what it is for), a
// value that is no size.
absl::StatusOr<ModelSpec> ModelFromHuggingFace(absl::string_view text,
                                               absl::string_view source_name);

}  // namespace pipewright
