// RunConfig -> everything that Lower and an engine need: presets resolved,
// defaults filled in, sizes checked against each other, the schedule built
// (or read) and verified.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/program/lower.h"
#include "sim/schedule/schedule.h"
#include "sim/topology/cluster.h"
#include "sim/topology/mapping.h"

namespace pipewright {

struct PreparedRun {
  RunConfig config;  // as given, with the sizes of the strategy filled in
  std::shared_ptr<const Schedule> schedule;
  LowerOptions lower;
  std::string engine;
  std::shared_ptr<const Cluster> cluster;      // null: no system
  std::shared_ptr<const RankMapping> mapping;  // null: no system
  std::string network_name;  // "hop 0.601 ms", "dgx-h100 (native)", "free"
  std::vector<std::string> warnings;
};

// Errors: kInvalidArgument or kNotFound with field, value and what is
// allowed; kFailedPrecondition for a schedule file that is no schedule;
// kResourceExhausted where strategy.max_activations cannot be met.
absl::StatusOr<PreparedRun> Prepare(const RunConfig& config);

}  // namespace pipewright
