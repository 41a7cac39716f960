// A table of measured operations (table_rows.h) as a job (job.h), by the rules
// of pipeline_rules.h.
#pragma once

#include <istream>
#include <string>

#include "absl/status/statusor.h"
#include "sim/analysis/diagnose/job.h"

namespace pipewright {

// Every step and every replica must have the operations of dp_rank 0 in the
// first step. Error: kInvalidArgument with file, line, column, value and what
// is allowed.
absl::StatusOr<MeasuredJob> ReadJobTable(std::istream& in,
                                         const std::string& source);

}  // namespace pipewright
