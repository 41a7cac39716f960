// The table that `execute --row` appends a run to (sim/compare/run_table.h).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "sim/cli/execute_report.h"
#include "sim/compare/run_table.h"
#include "sim/config/prepare.h"

namespace pipewright {

class RowFile {
 public:
  // Reads what is there and what is known of `run` in advance. The table is to
  // have `most` rows of it. Errors: a file that is no such table, a run without
  // a prediction.
  absl::Status Open(const std::string& path, const PreparedRun& run, int steps,
                    ClockKind clock, int most);
  // Is the same run there, as often as it shall be?
  bool has_run() const { return has_run_; }
  std::string key() const { return row_.Key(); }
  // The table, as it is now, with the run at its end. Error: it can be read no
  // more.
  absl::StatusOr<std::string> With(const ExecuteReport& report) const;

 private:
  std::string path_;
  ExecutedRow row_;
  bool has_run_ = false;
};

}  // namespace pipewright
