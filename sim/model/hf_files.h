// Where a Hugging Face model's config.json is: beside the user, or in the cache
// of the huggingface_hub library.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// `given` is a file, a folder that holds a config.json, or an id like
// "Qwen/Qwen3-8B" (alone or behind a folder), which is looked up in the local
// cache: $HF_HUB_CACHE, $HF_HOME/hub or ~/.cache/huggingface/hub; of its
// snapshots the one of refs/main, else the last by name. A path that is none of
// these and ends with ".json" comes back as it is. Error: kInvalidArgument with
// the file to fetch.
absl::StatusOr<std::string> HuggingFaceFile(const std::string& given);

}  // namespace pipewright
