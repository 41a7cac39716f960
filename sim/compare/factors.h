// Ratios of measured to simulated times in rows and columns (kinds of passes by
// ranks, say), explained with as few factors as do it: of all cells, a row, a
// column, or one cell, always the one that explains most. Medians throughout,
// so that a few odd values change nothing.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pipewright {

// Smaller differences are nothing to name; they are in the table all the same.
inline constexpr double kSmallestFactor = 0.02;
// A factor has to be this many standard errors away from 1: among a few
// thousand cells chance alone does not get there.
inline constexpr double kErrorsAway = 5;

double Median(std::vector<double> values);
// Standard deviation of normally distributed values, from their median
// absolute deviation.
double Deviation(const std::vector<double>& values);

using Column = std::pair<int, int>;  // rank; of messages the other one too

// The operations of one row and column; log ratios of their times.
struct Cell {
  std::string row;
  Column column;
  std::vector<size_t> ops;
  std::vector<double> logs;
  double weight = 0;  // simulated seconds
  double log = 0;     // what is not explained yet
  double error = 0;   // standard error of `log`
};

// Standard error of the median of `logs`; 0 where they are too few to tell.
double ErrorOfMedian(const std::vector<double>& logs);

// What may be named: cells of a row, of a column, of both or all.
struct Candidate {
  std::optional<std::string> row;
  std::optional<Column> column;

  bool Has(const Cell& cell) const {
    return (!row || *row == cell.row) && (!column || *column == cell.column);
  }
};

// The factors found, as logs, and the cells that each is of. What they explain
// is taken from `cells`.
std::vector<std::pair<Candidate, double>> Explain(size_t most,
                                                  std::vector<Cell>* cells);

}  // namespace pipewright
