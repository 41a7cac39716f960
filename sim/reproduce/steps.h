// Measured steps of whole training runs against the analytic cost model. Each
// table is experiments/papers/NAME/steps.csv; its head says what its columns
// are. Nothing is fitted to them: no code outside this folder reads them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"

namespace pipewright {

struct StepTable {
  std::string folder;  // "mlperf_405b"
  // What all rows of a table have besides their columns; may be null.
  void (*adjust)(const TableRow& row, RunConfig* config) = nullptr;
};

// The configuration of a row. Error: kInvalidArgument with what of the row
// cannot be expressed.
absl::StatusOr<RunConfig> ConfigOfStep(const StepTable& table,
                                       const TableRow& row,
                                       const std::string& engine);

// One comparison a row, in seconds of a step. A row that cannot be expressed
// has StepFacts::refused and no simulated time. Rows of equal strategy are
// simulated once.
absl::StatusOr<std::vector<Comparison>> ReproduceSteps(
    const StepTable& table, const std::string& engine);

}  // namespace pipewright
