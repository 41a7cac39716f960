#include "sim/compare/control.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

absl::StatusOr<PassCosts> CostsOf(const ExecutedRow& row, int stages) {
  const std::vector<absl::string_view> counts =
      absl::StrSplit(row.layers, ' ', absl::SkipEmpty());
  if (counts.size() != static_cast<size_t>(stages)) {
    return BadValue("layers", row.layers,
                    absl::StrCat("a number for each of ", stages, " stages"));
  }
  const double tokens = static_cast<double>(row.microbatch_size) * row.sequence;
  PassCosts costs;
  for (const absl::string_view count : counts) {
    int layers = 0;
    if (!absl::SimpleAtoi(count, &layers) || layers < 0) {
      return BadValue("layers", row.layers, "numbers of layers");
    }
    const double seconds = tokens * layers;
    costs.stages.push_back({.forward_s = seconds,
                            .backward_input_s = seconds,
                            .backward_weight_s = seconds});
  }
  return costs;
}

using Runs = std::vector<const RepeatedRun*>;

ControlSummary SummaryOf(const Runs& runs, bool of_all) {
  ControlSummary out;
  out.runs = static_cast<int>(runs.size());
  std::vector<double> sizes;
  int balance = 0;
  for (size_t one = 0; one < runs.size(); ++one) {
    const double error = runs[one]->control_error();
    sizes.push_back(std::abs(error));
    if (std::abs(error) > std::abs(out.worst_error) || one == 0) {
      out.worst_error = error;
      const ExecutedRow& row = runs[one]->row;
      out.worst =
          of_all ? absl::StrCat(RunName(row), ", pp ", row.pp) : RunName(row);
    }
    for (size_t two = one + 1; two < runs.size(); ++two) {
      if (runs[one]->row.pp != runs[two]->row.pp) continue;
      const double first_s = *runs[one]->control_s;
      const double second_s = *runs[two]->control_s;
      if (std::max(first_s, second_s) / std::min(first_s, second_s) - 1 <
          kTieShare) {
        ++out.ties;
        continue;
      }
      ++out.pairs;
      balance += (first_s < second_s) ==
                         (runs[one]->row.executed_s < runs[two]->row.executed_s)
                     ? 1
                     : -1;
    }
  }
  out.median_error = Median(std::move(sizes));
  if (out.pairs > 0) out.tau = static_cast<double>(balance) / out.pairs;
  return out;
}

}  // namespace

absl::StatusOr<double> ControlStep(const ExecutedRow& row) {
  ScheduleParams params;
  params.pp = row.pp;
  params.vpp = row.vpp;
  params.microbatches = row.microbatches;
  params.slices = row.slices;
  params.costs.given = true;  // F = B = W = 1
  PW_ASSIGN_OR_RETURN(Schedule built, BuildSchedule(row.schedule, params));
  LowerOptions options;
  PW_ASSIGN_OR_RETURN(options.costs, CostsOf(row, built.stages()));
  if (built.update_every == 0) {
    options.optimizer = OptimizerMode::kSynchronised;
  }
  PW_ASSIGN_OR_RETURN(
      const Program program,
      Lower(std::make_shared<const Schedule>(std::move(built)), options));
  PW_ASSIGN_OR_RETURN(const RunSummary run, RunFast(program, {}));
  if (!(run.iteration_s() > 0)) {
    return BadValue("layers", row.layers, "at least one layer");
  }
  return run.iteration_s();
}

void AddControl(RunsSummary* summary) {
  std::vector<double> scales;
  for (RanksSummary& size : summary->sizes) {
    for (RepeatedRun& run : size.runs) {
      const absl::StatusOr<double> step = ControlStep(run.row);
      if (!step.ok()) {
        summary->without_control.push_back(
            absl::StrCat(RunName(run.row), ", pp ", run.row.pp, ": ",
                         step.status().message()));
        continue;
      }
      run.control_s = *step;
      scales.push_back(run.row.executed_s / *step);
    }
  }
  // A scale that is fitted to one run or two says nothing of them.
  if (scales.size() < kFewestForControl) {
    for (RanksSummary& size : summary->sizes) {
      for (RepeatedRun& run : size.runs) run.control_s.reset();
    }
    return;
  }
  const double scale = Median(std::move(scales));
  Runs all;
  for (RanksSummary& size : summary->sizes) {
    Runs runs;
    for (RepeatedRun& run : size.runs) {
      if (!run.control_s) continue;
      *run.control_s *= scale;
      runs.push_back(&run);
      all.push_back(&run);
    }
    if (!runs.empty()) size.control = SummaryOf(runs, false);
  }
  summary->control = SummaryOf(all, true);
}

}  // namespace pipewright
