// Reports of a training log (sim/trace/training_log.h): alone for `diagnose`,
// beside a prediction for `compare`.
#pragma once

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/trace/trace_read.h"
#include "sim/trace/training_log.h"

namespace pipewright {

struct PredictedStep {
  std::string source;  // file
  double step_s = 0;
  bool in_units = false;               // it is units of a pass
  std::optional<double> tokens_per_s;  // of a device
  std::optional<double> tflops;        // of a device
  std::optional<double> memory_bytes;  // the largest rank's
};

// From the report of `simulate --json`. Error: kInvalidArgument with the file,
// if it is no such report.
absl::StatusOr<PredictedStep> PredictionOfReport(absl::string_view json,
                                                 const std::string& source);
// The last period of a trace, or its only iteration; it has no rates.
PredictedStep PredictionOfTrace(const ReadTrace& trace);

// predicted->step_s over the median of the log, less 1.
double StepError(const PredictedStep& predicted, const LogSummary& summary);

// `predicted` may be null.
std::string LogToText(const TrainingLog& log, const LogSummary& summary,
                      const PredictedStep* predicted);
// One object; its keys are in docs/compare.md and docs/diagnose.md.
std::string LogToJson(const TrainingLog& log, const LogSummary& summary,
                      const PredictedStep* predicted);

}  // namespace pipewright
