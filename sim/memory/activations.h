// What the order of a schedule alone says of memory: activations in flight (on
// one compute stream what is live depends on sequence, not on time) and
// versions of weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Which activations of an order an R makes again (Pass::activation): between
// the end of their F and that R no more of them is held than R begins from.
absl::flat_hash_set<uint64_t> RunAgain(const RankOrder& order);

// Peak of each rank in units of one microbatch through all the rank's stages
// of one replica: F adds 1/(vpp*slices) at its start, BW or W takes it away at
// its end; a split B takes away what W does not need, 1 - held_until_weight of
// it. FREE takes away and L adds the held activations of its pass; an O alone
// gives nothing back. If an R follows, F takes away what it has added at its
// end, and R adds it again; what R begins from is not counted. Where nothing is
// kept for a backward an F holds its own only.
// `moved`: the part that FREE and L move, [stage]; empty: all.
std::vector<double> PeakActivations(const Schedule& schedule,
                                    double held_until_weight,
                                    const std::vector<double>& moved = {});

// What these numbers count, for reports.
std::string PeakActivationsNote(double held_until_weight);

// Which weights the passes of a pipeline that is never flushed work with.
struct WeightVersions {
  // [rank] Optimizer steps between the weights that a forward is run on, or
  // predicted from, and those that its gradient changes.
  std::vector<int> staleness;
  // [rank] Sets of weights held at a time, a predicted one included.
  std::vector<int> versions;
};

// Staleness 0 and one version where the schedule is flushed.
WeightVersions WeightVersionsOf(const Schedule& schedule);

}  // namespace pipewright
