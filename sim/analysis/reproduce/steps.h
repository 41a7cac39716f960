// Measured steps of whole training runs against the analytic cost model. Each
// table is a folder of experiments/papers: steps.csv, the shapes and options of
// its runs if it has models.csv and recipes.csv, and columns.csv with what
// holds for all of them. Nothing is fitted to them: no code outside this folder
// reads them. A summary says how far off they are: by kind, in order, and how
// often the interval holds.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/analysis/reproduce/left_out.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/analysis/reproduce/table.h"
#include "sim/config/run_config.h"

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

// Why a step of a run that drops tokens does not count.
inline constexpr char kTokensDropped[] = "tokens are dropped";

// What the project aims at (docs/dev/validation.md). Here and below errors are
// parts of the measured time, positive if the estimate is too slow.
struct StepGoal {
  const char* kind;
  double mean;
  double worst;  // 0: none
};
const std::vector<StepGoal>& StepGoals();

struct KindSummary {
  std::string kind;
  int rows = 0;
  double mean = 0;      // the signed errors'
  double absolute = 0;  // their sizes'
  double worst = 0;     // with its sign
  std::string worst_row;
};

// Steps of one model, device, number of GPUs and global batch.
struct OrderSummary {
  std::string group;
  int rows = 0;
  int pairs = 0;  // whose measured times differ
  double tau = 0;
};

// Rows that have an interval. The score of an interval [low, high] for x at
// 90 %: its width and 20 times how far x lies outside (Gneiting and Raftery,
// 2007, section 6.2), over x. `constant`: the best score of estimate +- a part
// that is the same for all rows, chosen in hindsight.
struct IntervalSummary {
  int rows = 0;
  int inside = 0;
  double half_width = 0;
  double score = 0;
  double constant_score = 0;
  double constant = 0;
};

struct StepSummary {
  int counted = 0;
  int refused = 0;  // would count, but cannot be expressed
  int excluded = 0;
  std::vector<KindSummary> kinds;          // in the order of StepGoals
  std::vector<OrderSummary> orders;        // five rows and more
  std::vector<OrderSummary> small_orders;  // two to four
  IntervalSummary interval;
  std::vector<LeftOutSummary> left_out;  // as `kinds`, and all
  // Those that do not count but have an interval, and how many lie inside.
  int excluded_rows = 0;
  int excluded_inside = 0;
  // With those that do not count as their runs drop tokens, if there are any:
  // what leaving them out changes.
  int dropped = 0;
  std::vector<KindSummary> kinds_with_dropped;  // those that change
  IntervalSummary interval_with_dropped;
  int do_not_fit = 0;  // counted rows that ran, but are said not to fit
};

// `rows` of any tables; only those of measured steps are looked at.
StepSummary SummarizeSteps(const std::vector<Comparison>& rows);

double StepError(const Comparison& row);

}  // namespace pipewright
