// The time steps of a pipeline: in each a rank runs one pass, or nothing. Each
// pass runs in the first step that is behind that of its rank's pass before,
// and the gap of the schedule there (StepGap), and behind those that make its
// inputs on other ranks. Where the gaps are PyTorch's
// (torch/distributed/pipelining/schedules.py) and enough for all inputs, so are
// the steps. Knows no times.
//
// Time and memory O(passes).
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/program/network.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

struct DpClass;
struct Program;

// What takes one step: a pass with the R in front of it, all layers of a pass
// that is cut into them, a block, or a pair (below).
struct Action {
  int64_t begin = 0;  // in the rank's order: its first pass
  int64_t end = 0;    // behind it
  int64_t step = 0;
};

struct RankSteps {
  std::vector<Action> actions;
  // In the order of the passes that take them: which of the rank's order, and
  // the step that makes its input on another rank.
  struct Input {
    int64_t position = 0;
    int64_t step = 0;
  };
  std::vector<Input> inputs;
};

// [rank]. `batched`: gaps do not count, and with several chunks a forward and
// the full backward directly behind it are one step. They stay two steps on a
// rank whose forwards all stand in front of its backwards, and if the input of
// that backward needs that forward. Error: kFailedPrecondition if passes wait
// for each other.
absl::StatusOr<std::vector<RankSteps>> TimeStepsOf(const DpClass& own,
                                                   bool batched = false);

// Do ranks of `schedule` that wait by `rule` walk through time steps?
bool WalksSteps(const Schedule& schedule, WaitRule rule);

// What ranks post in the time steps, if they walk through them. Error: that of
// TimeStepsOf; batches have none.
absl::Status AddStepPosts(Program* program);

}  // namespace pipewright
