// Programs for differential tests, from a seed: a registered schedule, random
// costs, a network, a strategy, and side operations of every kind strewn over
// it. The same seed gives the same program everywhere.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/schedule.h"
#include "sim/topology/registry.h"
#include "tests/support/random_schedule.h"

namespace pipewright {

struct RandomProgram {
  std::string about;  // for INFO
  Program program;
};

struct RandomOptions {
  bool cluster = true;        // may use a cluster instead of a pure delay
  bool holding_rules = true;  // may use rendez-vous and batches
  bool copies = true;         // may add O and L
  bool side_operations = true;
  int most_replicas = 3;
  // Most classes of data-parallel replicas; with more than one also factors of
  // lanes.
  int most_classes = 1;
};

// Error: what Lower said; a seed may ask for something impossible.
absl::StatusOr<RandomProgram> MakeRandomProgram(uint32_t seed,
                                                const RandomOptions& options);
absl::StatusOr<RandomProgram> MakeRandomProgram(Random& random,
                                                const RandomOptions& options);

// Two nodes of `devices_per_node` on one switch, one NIC each, round numbers.
ShapeParams SmallFabric(int nodes, int devices_per_node, int nics_per_node);

}  // namespace pipewright
