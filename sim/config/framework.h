// Defaults of training frameworks: what strategy.framework says where the
// strategy says nothing else.
#pragma once

#include "sim/config/prepare_parts.h"
#include "sim/config/run_config.h"

namespace pipewright {

// What the framework itself refuses of these sizes. Error: kInvalidArgument.
absl::Status CheckFramework(const RunConfig& config, const RunSizes& sizes);

// `config`, of a run of these sizes, with the defaults of its framework, and a
// note of each of them; as it is without a framework. What the run does not
// allow is not set.
RunConfig WithFramework(RunConfig config, const RunSizes& sizes,
                        const FrameworkFacts& facts = FrameworkFacts());

// Is strategy.framework that of a file of that framework, which says all that
// is to be said?
bool FrameworkIsOfFile(const RunConfig& config);

}  // namespace pipewright
