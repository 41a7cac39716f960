// `list topologies`: the registered shapes as rows, as a table and as pictures.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "sim/cli/common.h"
#include "sim/cli/output_files.h"

namespace pipewright {

class Json;

// name, summary and params of each shape.
Json TopologyRows();
// Parameters that all shapes have inside a node; keys as in the rows' params.
Json NodeParamRows();
std::string TopologyTable();

// Writes pictures to `path`, a file or a folder that exists (there SHAPE.svg
// each): of the system that `config` gives, else of an example of each shape.
absl::Status DrawTopologies(const std::string& path,
                            const ConfigOptions& config, OutputFiles* files);

}  // namespace pipewright
