// `pipewright explain`: a run, where the time of its step goes, what the step
// would be with other times, and which times matter most. It prints nothing.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/analysis/explain/step_parts.h"
#include "sim/config/time_scales.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/order_moves.h"

namespace pipewright {

// The step with one kind of time ten per cent shorter and longer.
struct Sensitivity {
  std::string name;      // as in --what-if: "W", "p2p", "stage3"
  double shorter_s = 0;  // the step with the factor 1 - kSensitivityStep
  double longer_s = 0;   // and with 1 + kSensitivityStep
};
inline constexpr double kSensitivityStep = 0.1;

struct WhatIf {
  std::string scales;
  Report report;  // report of the run with the scaled times
  double step_s() const { return report.iteration_s; }
};

// A searched order beside the one that it was made from.
struct SearchedOrder {
  FoundOrder found;
  OrderMoves moves;
  SimulatedRun start;  // with that order
  double start_step_s = 0;
  // Parts of a rank's step that are bubbles, in the mean.
  double start_bubble = 0;
  double bubble = 0;
  std::vector<TraceOp> start_ops;  // for pictures
  std::vector<TraceOp> ops;
};

struct Explanation {
  SimulatedRun run;
  StepExplanation step;
  std::optional<SearchedOrder> searched;
  std::optional<WhatIf> what_if;
  std::vector<Sensitivity> sensitivities;  // the largest effect first
};

struct ExplainOptions {
  TimeScales what_if;         // none: where all factors are 1
  bool sensitivities = true;  // two more runs for each kind of time
};

// Errors: those of Prepare, PrepareScaled and the engine; kInvalidArgument
// where the run has too many operations to keep.
absl::StatusOr<Explanation> Explain(const RunConfig& config,
                                    const ExplainOptions& options,
                                    RunContext* context);

std::string ExplanationToText(const Explanation& explanation);
// One JSON object (docs/dev/explain.md).
std::string ExplanationToJson(const Explanation& explanation);
// Bars of the parts by rank, and of the sensitivities; timelines of a searched
// order and its start.
std::string ExplanationSvg(const Explanation& explanation);

}  // namespace pipewright
