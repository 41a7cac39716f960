// How far off estimated steps are: by kind, in order, and how often the
// interval holds. Errors are parts of the measured time, positive where the
// estimate is too slow.
#pragma once

#include <string>
#include <vector>

#include "sim/reproduce/paper.h"

namespace pipewright {

// Why a step of a run that drops tokens does not count.
inline constexpr char kTokensDropped[] = "tokens are dropped";

// What the project aims at, parts of the time (docs/validation.md).
struct StepGoal {
  const char* kind;
  double mean;
  double worst;  // 0: none
};
const std::vector<StepGoal>& StepGoals();

struct KindSummary {
  std::string kind;
  int rows = 0;
  double mean = 0;      // of the signed errors
  double absolute = 0;  // mean of their sizes
  double worst = 0;     // with its sign
  std::string worst_row;
};

// Steps of one model, device, number of GPUs and global batch.
struct OrderSummary {
  std::string group;
  int rows = 0;
  int pairs = 0;  // whose measured and whose estimated times differ
  double tau = 0;
};

// Of rows that have an interval. The score of an interval [low, high] for x at
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
  std::vector<OrderSummary> orders;        // of five rows and more
  std::vector<OrderSummary> small_orders;  // of two to four
  IntervalSummary interval;
  // With those that do not count as their runs drop tokens, if there are any:
  // what leaving them out changes.
  int dropped = 0;
  std::vector<KindSummary> kinds_with_dropped;  // of those that change
  IntervalSummary interval_with_dropped;
  int do_not_fit = 0;  // counted rows that ran, but are said not to fit
};

// `rows` of any tables; only those of measured steps are looked at.
StepSummary SummarizeSteps(const std::vector<Comparison>& rows);

double StepError(const Comparison& row);

}  // namespace pipewright
