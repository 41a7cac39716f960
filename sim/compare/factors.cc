#include "sim/compare/factors.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace pipewright {
namespace {

// Standard deviation of a normal distribution over its median absolute
// deviation; standard error of its median over that of its mean.
constexpr double kDeviationOfMedian = 1.4826;
constexpr double kErrorOfMedian = 1.2533;

// Weighted median of what is not explained in the candidate's cells.
double MedianOf(const Candidate& candidate, const std::vector<Cell>& cells) {
  std::vector<std::pair<double, double>> values;
  double total = 0;
  for (const Cell& cell : cells) {
    if (!candidate.Has(cell) || cell.logs.empty()) continue;
    values.emplace_back(cell.log, cell.weight);
    total += cell.weight;
  }
  std::sort(values.begin(), values.end());
  double below = 0;
  for (const auto& [log, weight] : values) {
    below += weight;
    if (below >= total / 2) return log;
  }
  return 0;
}

double ErrorOf(const Candidate& candidate, const std::vector<Cell>& cells) {
  double sum = 0;
  double weight = 0;
  for (const Cell& cell : cells) {
    if (!candidate.Has(cell) || cell.logs.empty()) continue;
    sum += cell.weight * cell.weight * cell.error * cell.error;
    weight += cell.weight;
  }
  return weight > 0 ? std::sqrt(sum) / weight : 0;
}

}  // namespace

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + middle)) /
         2;
}

double Deviation(const std::vector<double>& values) {
  const double median = Median(values);
  std::vector<double> away;
  away.reserve(values.size());
  for (const double value : values) away.push_back(std::abs(value - median));
  return kDeviationOfMedian * Median(std::move(away));
}

double ErrorOfMedian(const std::vector<double>& logs) {
  if (logs.size() < 2) return 0;
  return kErrorOfMedian * Deviation(logs) /
         std::sqrt(static_cast<double>(logs.size()));
}

std::vector<std::pair<Candidate, double>> Explain(size_t most,
                                                  std::vector<Cell>* cells) {
  std::vector<std::pair<Candidate, double>> named;

  std::vector<Candidate> candidates = {{}};
  std::map<std::string, int> rows;
  std::map<Column, int> columns;
  for (const Cell& cell : *cells) {
    ++rows[cell.row];
    ++columns[cell.column];
  }
  // The more general first: of equals it is taken.
  for (const auto& [row, count] : rows) {
    if (rows.size() > 1) candidates.push_back({row, {}});
  }
  for (const auto& [column, count] : columns) {
    if (columns.size() > 1) candidates.push_back({{}, column});
  }
  if (rows.size() > 1 && columns.size() > 1) {
    for (const Cell& cell : *cells) {
      candidates.push_back({cell.row, cell.column});
    }
  }
  for (size_t round = 0; round < most; ++round) {
    const Candidate* best = nullptr;
    double best_gain = 0;
    double best_log = 0;
    for (const Candidate& candidate : candidates) {
      const double log = MedianOf(candidate, *cells);
      if (std::abs(std::expm1(log)) < kSmallestFactor ||
          std::abs(log) < kErrorsAway * ErrorOf(candidate, *cells)) {
        continue;
      }
      double gain = 0;
      for (const Cell& cell : *cells) {
        if (!candidate.Has(cell)) continue;
        gain += cell.weight * (std::abs(cell.log) - std::abs(cell.log - log));
      }
      if (gain > best_gain * (1 + 1e-6)) {
        best = &candidate;
        best_gain = gain;
        best_log = log;
      }
    }
    if (best == nullptr) break;
    for (Cell& cell : *cells) {
      if (best->Has(cell)) cell.log -= best_log;
    }
    named.emplace_back(*best, best_log);
  }
  return named;
}

}  // namespace pipewright
