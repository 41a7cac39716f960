// Where the time of a step goes, rank by rank: what the compute stream did, and
// why it stood still. docs/explain.md has the definitions for users.
//
// The step of a rank is as long as the iteration (RunSummary::iteration_s). It
// begins when the compute stream of the rank has ended the iteration before, or
// with the run. What the stream does counts as what it is. An interval in
// which it does nothing belongs to the operation that it waits for, and at each
// moment to the operation that then ran on the chain of dependencies behind it:
// the dependency that ended last, before its start the one that it waited for
// in turn, and so on. So a late transfer counts while it is on its way, and
// the pass that was late before it counts before.
//
// Units: seconds.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/explain/dependency_graph.h"
#include "sim/engine/engine.h"

namespace pipewright {

struct Program;

enum class StepPart : uint8_t {
  // Compute.
  kForward,
  kBackwardInput,
  kBackwardWeight,
  kBackwardFull,
  kRecompute,
  kOptimizer,  // the step on the device, its check and its undoing
  // Bubble. The first three wait for passes of other ranks.
  kWarmUp,     // before the rank's first backward
  kCoolDown,   // after its last forward
  kImbalance,  // between
  kTransfer,   // for a transfer between ranks
  kOffload,    // for a copy of activations to or from the host
  kStep,       // for the optimizer: its work elsewhere, its copies, the host
  // Exposed communication.
  kAllReduce,
  kReduceScatter,
  kAllGather,
  kBarrier,
  kPull,
  kPush,
};
inline constexpr int kNumStepParts = 18;

enum class PartGroup : uint8_t { kCompute, kBubble, kCommunication };
PartGroup GroupOf(StepPart part);
// The key in JSON: "F", "warm_up", "all_reduce".
absl::string_view PartKey(StepPart part);
// "warm-up", "all-reduce".
absl::string_view PartName(StepPart part);

struct StepParts {
  std::array<double, kNumStepParts> seconds{};

  double& operator[](StepPart part) { return seconds[static_cast<int>(part)]; }
  double operator[](StepPart part) const {
    return seconds[static_cast<int>(part)];
  }
  double Sum() const;
  double Sum(PartGroup group) const;
};

struct RankStep {
  int rank = 0;
  double start_s = 0;  // start of the rank's step, from the start of the run
  StepParts parts;
};

// One piece of the critical path; those of a step follow each other without a
// gap.
struct PathPiece {
  double start_s = 0;
  double end_s = 0;
  StepPart part = StepPart::kForward;
  int rank = 0;
  std::string what;  // "F3", "all-reduce"
};

struct StepExplanation {
  double step_s = 0;
  int iteration = 0;  // whose step it is, from 0
  int replica = 0;    // the data-parallel one that ends last
  std::vector<RankStep> ranks;
  std::vector<PathPiece> critical_path;  // by time
  StepParts path_parts;                  // its sum by part
};

// Explains the last iteration of `summary`. Error: kInternal if a chain of
// dependencies has a hole that nothing explains.
absl::StatusOr<StepExplanation> ExplainStep(const Program& program,
                                            const DependencyGraph& graph,
                                            const RunSummary& summary);

}  // namespace pipewright
