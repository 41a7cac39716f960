#include "execute/report/row_file.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "calibrate/machine.h"
#include "execute/report/execute_run.h"
#include "execute/report/run_to_train.h"
#include "sim/base/check.h"
#include "sim/base/digest.h"
#include "sim/base/file.h"
#include "sim/base/status.h"
#include "sim/base/version.h"
#include "sim/cost/profile_costs.h"

namespace pipewright {
namespace {

// 0 without passes that take time.
double ShortestPass(const PreparedRun& run) {
  const Schedule& schedule = *run.schedule.lowered;
  double shortest_s = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    for (const Pass pass : schedule.order(rank)) {
      const bool counts = pass.kind() == PassKind::kForward ||
                          pass.kind() == PassKind::kBackwardWeight ||
                          IsBackward(pass.kind());
      if (!counts) continue;
      const int stage =
          schedule.placement.StageOf(rank, pass.chunk(), pass.direction());
      const double seconds =
          run.lower.costs.Seconds(pass.kind(), stage, schedule.slices);
      if (seconds <= 0) continue;
      shortest_s = shortest_s > 0 ? std::min(shortest_s, seconds) : seconds;
    }
  }
  return shortest_s;
}

std::string CountsText(const std::vector<double>& counts) {
  return absl::StrJoin(counts, " ", [](std::string* out, double count) {
    absl::StrAppendFormat(out, "%.4g", count);
  });
}

// A table without rows if there is no file yet.
absl::StatusOr<std::string> ReadTable(const std::string& path) {
  absl::StatusOr<std::string> content = ReadFile(path, InputKind::kProfile);
  if (absl::IsNotFound(content.status())) return ExecutedTableHeader();
  return content;
}

}  // namespace

absl::Status RowFile::Open(const ExecuteRequest& request,
                           const PreparedRun& run, absl::string_view options) {
  path_ = *request.row;
  if (!run.prepared_model || request.paced()) {
    return BadValue("--row", path_,
                    "with a model and a clock that runs kernels");
  }
  if (!HasTimes(run)) {
    return BadValue("--row", path_,
                    "with pass times to predict from (--profile)");
  }
  const Schedule& schedule = *run.schedule.lowered;
  row_.schedule = schedule.name;
  row_.pp = schedule.pp();
  row_.vpp = schedule.vpp();
  row_.microbatches = schedule.microbatches;
  const TrainingSpec& training = run.prepared_model->training;
  row_.microbatch_size = static_cast<int>(training.microbatch_size);
  row_.sequence = static_cast<int>(training.sequence);
  row_.slices = schedule.slices;
  const StageLayout& layout = run.prepared_model->layout;
  std::vector<int64_t> layers;
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    layers.push_back(layout.LayersOf(static_cast<int>(stage)));
  }
  row_.layers = absl::StrJoin(layers, " ");
  row_.steps = request.steps;
  row_.clock = request.clock;
  row_.options = Digest(options);
  row_.shortest_pass_s = ShortestPass(run);
  row_.date = UtcDate();
  row_.version = kVersion;
  row_.profile = run.costs.profile
                     ? DescribeProfile(*run.costs.profile->profile)
                     : "given on the command line";
  PW_ASSIGN_OR_RETURN(const std::string content, ReadTable(path_));
  PW_ASSIGN_OR_RETURN(const std::vector<ExecutedRow> rows,
                      ParseExecutedTable(content, path_));
  const bool checks = !request.no_check && !request.replays();
  int found = 0;
  for (const ExecutedRow& row : rows) {
    if (row.Key() != row_.Key()) continue;
    if (checks && row.gradients == "unchecked") continue;
    ++found;
    differs_ |= row.gradients == "differ";
  }
  has_run_ = found >= request.row_runs;
  return absl::OkStatus();
}

absl::StatusOr<std::string> RowFile::With(const ExecuteReport& report) const {
  // Others may have added theirs meanwhile.
  PW_ASSIGN_OR_RETURN(const std::string content, ReadTable(path_));
  PW_CHECK(report.predicted_iteration_s.has_value());
  ExecutedRow row = row_;
  row.predicted_s = *report.predicted_iteration_s;
  row.executed_s = report.report.iteration_s;
  row.gradients = !VerdictOf(report).ok()          ? "differ"
                  : !report.checked                ? "unchecked"
                  : report.trained.check.same_bits ? "bits"
                                                   : "tolerance";
  row.peak_activations = CountsText(report.report.peak_activations);
  const std::vector<double>& planned = report.predicted_peak_activations;
  // Sums of parts, which round.
  if (!std::equal(report.report.peak_activations.begin(),
                  report.report.peak_activations.end(), planned.begin(),
                  planned.end(), [](double run, double plan) {
                    return std::abs(run - plan) <= 1e-9 * plan;
                  })) {
    absl::StrAppend(&row.peak_activations, " != ", CountsText(planned));
  }
  row.wall_s = report.trained.run.wall_s;
  row.device = report.trained.device;
  row.libraries = report.trained.libraries;
  return absl::StrCat(content, ExecutedTableLine(row));
}

}  // namespace pipewright
