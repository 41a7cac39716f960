// Folders of traces of PyTorch's profiler, one file a rank.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

bool IsFolder(const std::string& path);

// Its .json and .json.gz files in the order of their names, 2 before 10.
// Error: kNotFound for a folder that cannot be read.
absl::StatusOr<std::vector<std::string>> TracesOfFolder(
    const std::string& folder);

}  // namespace pipewright
