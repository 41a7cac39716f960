// The control of a table of executed runs: a prediction that knows nothing of
// the machine. F, B and W of a layer take the same time, embedding, head,
// optimizer and messages none; one scale, the same for all runs, is fitted to
// the executed ones (the median of executed over counted). The difference to a
// calibrated prediction is what calibration adds.
//
// From the columns of the table alone: schedule, sizes, layers. What they do
// not tell (own parameters of a schedule, limits of a planner, recomputation)
// is as it is by default; steps end with a synchronised optimizer, as those of
// `execute` do.
#pragma once

#include "absl/status/statusor.h"
#include "sim/compare/run_summary.h"
#include "sim/compare/run_table.h"

namespace pipewright {

// A step of the run, where F, B and W of a layer take 1 each for a token. By
// engine fast, so the same everywhere. Error: the schedule is not registered,
// or does not take these sizes.
absl::StatusOr<double> ControlStep(const ExecutedRow& row);

// The fewest runs that a scale is fitted to.
inline constexpr size_t kFewestForControl = 3;

// Fills in the fields of `summary` that are called control. Its runs are there.
// With fewer than kFewestForControl runs there is none.
void AddControl(RunsSummary* summary);

}  // namespace pipewright
