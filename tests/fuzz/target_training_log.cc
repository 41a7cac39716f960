#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/trace/training_log.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {
namespace {

void CheckLogError(const absl::Status& status) {
  PW_CHECK(ExitCode(status) == 2);
  PW_CHECK(absl::StrContains(status.message(), "fuzz.log"));
}

}  // namespace

bool FuzzTrainingLog(absl::string_view input) {
  const absl::StatusOr<TrainingLog> log = ReadTrainingLog(input, "fuzz.log");
  if (!log.ok()) {
    CheckLogError(log.status());
    return false;
  }
  const absl::StatusOr<LogSummary> summary = SummarizeLog(*log, -1);
  if (!summary.ok()) {
    CheckLogError(summary.status());
    return false;
  }
  PW_CHECK(summary->warm_up.size() + summary->steps == log->steps.size());
  PW_CHECK(summary->step_s->least > 0);
  PW_CHECK(summary->step_s->least <= summary->step_s->median);
  PW_CHECK(std::isfinite(summary->step_s->median));
  return true;
}

}  // namespace pipewright::testing
