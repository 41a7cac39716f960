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

namespace pipewright {

struct DpClass;
struct Program;

// What takes one step: a pass with the R in front of it, all layers of a pass
// that is cut into them, or a block.
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

// [rank]. Error: kFailedPrecondition where passes wait for each other.
absl::StatusOr<std::vector<RankSteps>> TimeStepsOf(const DpClass& own);

// What ranks receive in the time steps of a schedule (WaitRule::kStepped).
// Error: that of TimeStepsOf.
absl::Status AddStepReceives(Program* program);

}  // namespace pipewright
