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
// sequence is max_position_embeddings, the longest one: who runs the model says
// which it is. Of llama4 and gemma3 text_config is read, and a note says so.
// Errors: kInvalidArgument for text that is no JSON object, a key that stands
// twice in one object, an unknown model_type (with the known ones), a type or
// a key whose part no field has (with its value), a missing key (with what it
// is for), a value that is no size.
absl::StatusOr<ModelSpec> ModelFromHuggingFace(absl::string_view text,
                                               absl::string_view source_name);

}  // namespace pipewright
