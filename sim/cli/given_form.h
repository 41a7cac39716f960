// What the first word behind a verb is: a configuration, a model, or a file of
// a training framework.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/config/config_edit.h"

namespace pipewright {

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

// Puts a model in `*file` below all `layers`, and a framework's file into
// `*from_args`; `*file` stays only if it is a configuration, or empty. Error:
// that of FormOf; a model or a file of arguments that is given twice.
absl::Status TakeGiven(std::string* file, std::string* from_args,
                       std::vector<std::vector<ConfigEdit>>* layers);

}  // namespace pipewright
