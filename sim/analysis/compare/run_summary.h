// All predictions of a table of executed runs together: how far they are off,
// whether they rank schedules as the runs do, and whether gradients and
// activations are right.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/analysis/compare/run_table.h"

namespace pipewright {

// Pairs of schedules predicted closer than this are ties.
inline constexpr double kTieShare = 0.02;

// The executions of one run, taken together.
struct RepeatedRun {
  // predicted_s and executed_s: the median of each. Gradients: the worst that a
  // check has found. Peaks: those that differ, where some do. wall_s: the sum.
  ExecutedRow row;
  int executions = 1;
  double least_error = 0;  // smallest error of a single one
  double most_error = 0;

  // The control's step; none where there is no control.
  std::optional<double> control_s;

  double error() const { return row.error(); }
  double control_error() const { return *control_s / row.executed_s - 1; }
};

// The errors of the control, on the runs for which there is one.
struct ControlSummary {
  int runs = 0;
  double median_error = 0;  // median of magnitudes
  double worst_error = 0;   // with its sign
  std::string worst;
  double tau = 0;  // over pairs that the control tells apart; 0 with none
  int pairs = 0;
  int ties = 0;
};

// Runs of one number of ranks, the fastest predicted first.
struct RanksSummary {
  int pp = 1;
  std::vector<RepeatedRun> runs;
  double median_error = 0;  // median of magnitudes
  double worst_error = 0;   // with its sign
  std::string worst;        // whose
  // Kendall's tau over all pairs that are no ties; 0 with none.
  double tau = 0;
  int pairs = 0;
  std::vector<std::pair<std::string, std::string>> swapped;  // not as predicted
  std::vector<std::pair<std::string, std::string>> ties;
  std::optional<ControlSummary> control;
};

struct RunsSummary {
  std::vector<RanksSummary> sizes;  // by pp
  int runs = 0;
  int executions = 0;  // all of them together
  double median_error = 0;
  double worst_error = 0;
  std::string worst;
  double shortest_pass_s = 0;
  double wall_s = 0;
  int same_bits = 0;  // gradients of so many runs
  int agree = 0;      // or within the tolerance
  int unchecked = 0;
  int peaks_agree = 0;
  std::optional<ControlSummary> control;
  std::vector<std::string> without_control;  // runs, and why
  std::vector<std::string> devices, libraries, profiles, versions, clocks;
  std::string first_date, last_date;
};

// "tau 0.984", or "no tau" where there is no pair.
std::string TauInWords(int pairs, double tau);

// "a - b, c - d", with " - " between.
std::string PairsText(
    const std::vector<std::pair<std::string, std::string>>& pairs,
    absl::string_view between);
// "zb-h1", "zb-h1 (uneven)" where its stages differ.
std::string RunName(const ExecutedRow& row);

// A sentence that explains the control, printed after its numbers.
inline constexpr absl::string_view kControlMeaning =
    "F = B = W of every layer, nothing calibrated, one scale fitted to these "
    "runs";
// "error 3.1 % in the median of 32, ...".
std::string ControlInWords(const ControlSummary& control);
// By which clock the runs were executed, and what that leaves out.
std::string ConditionsInWords(const RunsSummary& summary);

// Error: kInvalidArgument without a row.
absl::StatusOr<RunsSummary> SummarizeRuns(const std::vector<ExecutedRow>& rows);

std::string RunsToText(const RunsSummary& summary);
// One object; the keys are in docs/dev/compare.md.
std::string RunsToJson(const RunsSummary& summary);
// The errors of all runs, a panel for each number of ranks.
std::string RunsSvg(const RunsSummary& summary);
// One static page with table and picture; no network, no script.
std::string RunsHtml(const RunsSummary& summary);

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
