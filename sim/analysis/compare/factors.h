// Ratios of measured to simulated times in rows and columns (kinds of passes by
// ranks, say), explained with as few factors as do it. Each cell is explained
// once: by one factor of cells that are alike, or by one of its row and one of
// its column, which then multiply. Medians throughout, so that a few odd values
// change nothing.
//
// Method. What most columns of a row have in common is the row's own ratio;
// columns that part from it are told apart by value. A column whose rows all
// part from theirs by the same ratio is slow as a whole. Where rows have ratios
// of their own too, such a column is said either by the ratios that its cells
// come to, or by one factor on top of the rows': whichever takes fewer factors.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// Smaller differences are not named, and factors no further apart count as one.
// The table has them all the same.
inline constexpr double kSmallestFactor = 0.02;
// A factor has to be this many standard errors away from 1: among a few
// thousand cells chance alone does not get there.
inline constexpr double kErrorsAway = 5;

// Standard deviation of normally distributed values, from their median
// absolute deviation.
double Deviation(const std::vector<double>& values);

using Column = std::pair<int, int>;  // rank; of messages the other one too

// The operations of one row and column; log ratios of their times.
struct Cell {
  std::string row;
  Column column;
  std::vector<size_t> ops;
  std::vector<double> logs;  // empty: takes no time in the simulation
  double weight = 0;         // simulated seconds
  double log = 0;            // median of `logs`
  double error = 0;          // standard error of `log`
};

// Standard error of the median of `logs`; 0 where they are too few to tell.
double ErrorOfMedian(const std::vector<double>& logs);

// The cells of all these rows in all these columns, and their factor.
struct Factor {
  std::vector<std::string> rows;  // ascending
  std::vector<Column> columns;    // ascending
  double log = 0;

  bool Has(const Cell& cell) const;
};

// The logs of a cell's factors add up to the explained part of it. No two
// factors share a cell, except those of whole columns and of rows.
std::vector<Factor> Explain(const std::vector<Cell>& cells);

// Groups of cells in words.
struct CellNames {
  std::vector<std::string> kinds;  // empty: all that there are
  std::vector<Column> places;      // ranks, or links; empty: all
  // "F on rank 2", "rank 3: all passes", "F, W on ranks 0-2, 5",
  // "messages rank 0 -> 1", "copies on all ranks".
  std::string text;
};

// The cells of `rows` in `columns`, both ascending, neither empty, of all
// `cells`. `all`: what they are called where all rows are meant.
CellNames NameCells(absl::string_view all, const std::vector<std::string>& rows,
                    const std::vector<Column>& columns,
                    const std::vector<Cell>& cells);

}  // namespace pipewright
