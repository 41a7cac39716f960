// The simulator's prediction of a run that `pipewright execute` executes, and
// fields of the configuration that only one of the two would follow.
#pragma once

#include "absl/status/status.h"
#include "sim/cli/execute_report.h"
#include "sim/config/prepare.h"

namespace pipewright {

struct Program;

// Where and by which clock a program runs.
struct WayToRun {
  ClockKind clock = ClockKind::kVirtual;
  bool replays = false;    // ranks alone, in time that is composed
  bool processes = false;  // perhaps on several machines
};

// Error: kInvalidArgument for fields that only the prediction would follow:
// links that no message takes, microbatches of unlike lengths.
absl::Status CheckPredictable(const PreparedRun& run, const WayToRun& way);

// `read` without the defaults of a prediction that do not hold for this clock:
// passes and copies that slow each other down, and passes of 1 s where nobody
// has given times. Only the paced clock uses these; the others measure.
RunConfig WithoutUnexecuted(RunConfig read, const WayToRun& way);

// The step and the ranks' spans, where pass times are given.
absl::Status Predict(const PreparedRun& run, const Program& program,
                     ExecuteReport* report);

}  // namespace pipewright
