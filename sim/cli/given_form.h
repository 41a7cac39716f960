// What the first word behind a verb is: a configuration, a model, or a file of
// a training framework.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pipewright {

struct GivenConfig;

enum class GivenForm : uint8_t {
  kConfiguration,
  kPreset,       // a model by its name
  kHuggingFace,  // a folder with a config.json, that file, or "Qwen/Qwen3-8B"
  kFramework,    // what --from-args takes
};

// By the names of presets, the ending, and else by the keys in it. Error:
// kInvalidArgument for a word that is neither a file nor a model, with the
// nearest one. A file that cannot be read is a configuration, whose reader says
// so.
absl::StatusOr<GivenForm> FormOf(const std::string& given);

// Puts a model in `given->source` below all of its layers, and a framework's
// file into `given->arguments_file`; `source` stays only if it is a
// configuration, or empty. A note says which one is meant if a preset and a
// folder or file have one name. Error: that of FormOf; a model or a file of
// arguments that is given twice.
absl::Status TakeGiven(GivenConfig* given);

}  // namespace pipewright
