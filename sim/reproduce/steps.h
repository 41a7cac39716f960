// Measured steps of whole training runs against the analytic cost model. Each
// table is a folder of experiments/papers: steps.csv, the shapes and options of
// its runs if it has models.csv and recipes.csv, and columns.csv with what
// holds for all of them. Nothing is fitted to them: no code outside this folder
// reads them.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"

namespace pipewright {

// The rows of steps.csv, "mlperf_405b", with all that belongs to them.
std::vector<TableRow> ReadSteps(const std::string& folder);

// Error: kInvalidArgument with what of the row cannot be expressed.
absl::StatusOr<RunConfig> ConfigOfStep(const TableRow& row,
                                       const std::string& engine);

// A comparison a row, in seconds of a step. A row that cannot be expressed has
// StepFacts::refused and no simulated time. A strategy is simulated once, with
// the options of its first row, the newest release.
absl::StatusOr<std::vector<Comparison>> ReproduceSteps(
    const std::string& folder, const std::string& engine);

}  // namespace pipewright
