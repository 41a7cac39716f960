#include <cmath>
#include <sstream>
#include <string>

#include "absl/strings/match.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/analysis/diagnose/read_table.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "tests/fuzz/targets.h"

namespace pipewright::testing {

bool FuzzJobTable(absl::string_view input) {
  std::istringstream in{std::string(input)};
  const absl::StatusOr<MeasuredJob> job = ReadJobTable(in, "fuzz.csv");
  if (!job.ok()) {
    PW_CHECK(ExitCode(job.status()) == 2);
    PW_CHECK(absl::StrContains(job.status().message(), "fuzz.csv"));
    return false;
  }
  const Diagnosis found = Diagnose(*job, ComputeIdeal::kMean);
  PW_CHECK(std::isfinite(found.no_gap_s) && std::isfinite(found.ideal_s));
  PW_CHECK(found.workers.size() == static_cast<size_t>(job->pp) * job->dp);
  return true;
}

}  // namespace pipewright::testing
