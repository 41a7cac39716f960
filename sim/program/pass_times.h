// When the passes of a schedule run while nothing is copied: what a plan of
// copies is made against.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

struct Program;

// Times of one rank. Seconds from the start of the iteration, [position] of its
// order; both passes of a block have the block's. What is no pass (O, L, FREE,
// SYNC) takes no time and stands where the pass before it ends.
struct RankPassTimes {
  std::vector<double> start_s;
  std::vector<double> end_s;
};

// [rank] of the first replica in its first iteration, each pass as early as its
// inputs allow. Copies, side operations and sharing of links are left out.
// Error: kFailedPrecondition when the ranks wait for each other.
absl::StatusOr<std::vector<RankPassTimes>> EarliestTimes(
    const Program& program);

// Moves the forwards in front of a rank's first backward as late as they can
// run without any other pass running later ("late warm-up" of PipeOffload,
// arXiv 2503.01328): their activations are needed no sooner.
void DelayWarmUp(const Program& program, std::vector<RankPassTimes>* times);

}  // namespace pipewright
