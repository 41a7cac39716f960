#include "sim/reproduce/step_summary.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

namespace pipewright {
namespace {

// Of a 90 % interval: 2 / (1 - 0.9).
constexpr double kOutsideWeight = 20;
// The constant bands that are tried.
constexpr double kBandStep = 0.0025;
constexpr double kWidestBand = 3;

KindSummary KindOf(const std::string& kind,
                   const std::vector<const Comparison*>& rows) {
  KindSummary out;
  out.kind = kind;
  for (const Comparison* row : rows) {
    if (row->step->kind != kind) continue;
    const double error = StepError(*row);
    ++out.rows;
    out.mean += error;
    out.absolute += std::abs(error);
    if (std::abs(error) > std::abs(out.worst)) {
      out.worst = error;
      out.worst_row = row->setting;
    }
  }
  if (out.rows > 0) {
    out.mean /= out.rows;
    out.absolute /= out.rows;
  }
  return out;
}

OrderSummary OrderOf(const std::string& group,
                     const std::vector<const Comparison*>& rows) {
  OrderSummary out;
  out.group = group;
  out.rows = static_cast<int>(rows.size());
  int balance = 0;
  for (size_t first = 0; first < rows.size(); ++first) {
    for (size_t second = first + 1; second < rows.size(); ++second) {
      const double measured =
          NumberOf(rows[first]->published) - NumberOf(rows[second]->published);
      const double estimated = rows[first]->simulated - rows[second]->simulated;
      if (measured == 0) continue;
      ++out.pairs;
      // What the estimates cannot tell apart is not in order.
      if (estimated == 0) continue;
      balance += (measured > 0) == (estimated > 0) ? 1 : -1;
    }
  }
  if (out.pairs > 0) out.tau = static_cast<double>(balance) / out.pairs;
  return out;
}

double Score(double low, double high, double measured) {
  const double outside = std::max({0.0, low - measured, measured - high});
  return (high - low + kOutsideWeight * outside) / measured;
}

double ConstantScore(const std::vector<const Comparison*>& rows, double part) {
  double sum = 0;
  for (const Comparison* row : rows) {
    sum += Score(row->simulated * (1 - part), row->simulated * (1 + part),
                 NumberOf(row->published));
  }
  return sum / static_cast<double>(rows.size());
}

IntervalSummary IntervalOf(std::vector<const Comparison*> rows) {
  IntervalSummary out;
  rows.erase(std::remove_if(
                 rows.begin(), rows.end(),
                 [](const Comparison* row) { return row->step->high <= 0; }),
             rows.end());
  out.rows = static_cast<int>(rows.size());
  if (rows.empty()) return out;
  for (const Comparison* row : rows) {
    const double measured = NumberOf(row->published);
    const StepFacts& facts = *row->step;
    out.inside += measured >= facts.low && measured <= facts.high;
    out.half_width += (facts.high - facts.low) / 2 / row->simulated / out.rows;
    out.score += Score(facts.low, facts.high, measured) / out.rows;
  }
  out.constant_score = std::numeric_limits<double>::infinity();
  for (double part = kBandStep; part < kWidestBand; part += kBandStep) {
    const double score = ConstantScore(rows, part);
    if (score >= out.constant_score) continue;
    out.constant_score = score;
    out.constant = part;
  }
  return out;
}

}  // namespace

const std::vector<StepGoal>& StepGoals() {
  static const auto* goals = new std::vector<StepGoal>{
      {"dense, H100 and H200", 0.06, 0.15},
      {"dense, B200", 0.08, 0.20},
      {"dense, GB200, GB300 and B300", 0.12, 0},
      {"dense, nvfp4", 0.15, 0},
      {"experts, Hopper", 0.20, 0.40},
      {"experts, Blackwell", 0.20, 0.40},
  };
  return *goals;
}

double StepError(const Comparison& row) {
  return row.simulated / NumberOf(row.published) - 1;
}

StepSummary SummarizeSteps(const std::vector<Comparison>& rows) {
  StepSummary out;
  std::vector<const Comparison*> counted;
  std::vector<const Comparison*> dropped;
  std::map<std::string, std::vector<const Comparison*>> groups;
  for (const Comparison& row : rows) {
    if (!row.step) continue;
    if (!row.step->excluded.empty()) {
      ++out.excluded;
      if (row.step->excluded == kTokensDropped && row.has_estimate()) {
        dropped.push_back(&row);
      }
    } else if (!row.step->refused.empty()) {
      ++out.refused;
    } else {
      counted.push_back(&row);
      groups[row.step->group].push_back(&row);
      out.do_not_fit += row.step->fits ? 0 : 1;
    }
  }
  out.counted = static_cast<int>(counted.size());
  for (const StepGoal& goal : StepGoals()) {
    out.kinds.push_back(KindOf(goal.kind, counted));
  }
  for (const auto& [group, members] : groups) {
    if (members.size() < 2) continue;
    (members.size() < 5 ? out.small_orders : out.orders)
        .push_back(OrderOf(group, members));
  }
  out.interval = IntervalOf(counted);
  out.dropped = static_cast<int>(dropped.size());
  if (!dropped.empty()) {
    counted.insert(counted.end(), dropped.begin(), dropped.end());
    for (const KindSummary& kind : out.kinds) {
      KindSummary all = KindOf(kind.kind, counted);
      if (all.rows > kind.rows) out.kinds_with_dropped.push_back(all);
    }
    out.interval_with_dropped = IntervalOf(std::move(counted));
  }
  return out;
}

}  // namespace pipewright
