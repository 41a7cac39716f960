// The cluster that section `system` of a configuration stands for, without a
// run on it: for pictures.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"
#include "sim/topology/cluster.h"
#include "sim/topology/registry.h"

namespace pipewright {

struct SystemCluster {
  ShapeParams params;  // complete
  std::shared_ptr<const Cluster> cluster;
};

// Where the nodes are not given: as many as sizes of the shape multiply to, or
// as its example has. Error: kInvalidArgument with field, value and what is
// allowed, as for a run; for a configuration without a system.
absl::StatusOr<SystemCluster> ClusterOf(const RunConfig& config,
                                        RunContext* context);

}  // namespace pipewright
