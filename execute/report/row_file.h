// The table that `execute --row` appends a run to
// (sim/analysis/compare/run_table.h).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/compare/run_table.h"
#include "sim/config/prepare.h"

namespace pipewright {

struct ExecuteReport;
struct ExecuteRequest;

class RowFile {
 public:
  // Reads the table, and fills in what is known of `run` in advance. `options`:
  // all else that makes it another run. Errors: a file that is no such table, a
  // run without a prediction.
  absl::Status Open(const ExecuteRequest& request, const PreparedRun& run,
                    absl::string_view options);
  // Does the table have the run as often as wanted?
  bool has_run() const { return has_run_; }
  // Do the gradients differ in one of these?
  bool differs() const { return differs_; }
  std::string key() const { return row_.Key(); }
  // The table, as it is now, with the run at its end. Error: it can no longer
  // be read.
  absl::StatusOr<std::string> With(const ExecuteReport& report) const;

 private:
  std::string path_;
  ExecutedRow row_;
  bool has_run_ = false;
  bool differs_ = false;
};

}  // namespace pipewright
