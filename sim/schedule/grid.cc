#include "sim/schedule/grid.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"

namespace pipewright {
namespace {

// Most ranks that a message shows.
constexpr int kMaxGridRows = 64;
// Entries shown on each side of the blocked one.
constexpr int kGridMargin = 3;

using Cells = std::array<std::string, 2 * kGridMargin + 1>;

// The cells around one rank's position; kGridMargin before, the marked one,
// kGridMargin behind. A block is one cell.
Cells CellsOf(const GridSource& source, int rank, int64_t position) {
  const int64_t size = source.size(rank);
  const auto opens = [&](int64_t index) {
    return index >= 0 && index + 1 < size && source.opens(rank, index);
  };
  const auto cell = [&](int64_t index) {
    const std::string text = source.text(rank, index);
    if (!opens(index)) return text;
    return absl::StrCat("(", text, "&", source.text(rank, index + 1), ")");
  };
  Cells cells;
  int64_t index = position;
  for (int column = kGridMargin - 1; column >= 0 && index > 0; --column) {
    index -= opens(index - 2) ? 2 : 1;
    cells[column] = cell(index);
  }
  if (index > 0) cells[0] = absl::StrCat("... ", cells[0]);
  index = position;
  for (int column = kGridMargin; column <= 2 * kGridMargin; ++column) {
    if (index >= size) {
      if (column == kGridMargin) cells[column] = "(end)";
      break;
    }
    cells[column] = column == kGridMargin ? absl::StrCat(">", cell(index), "<")
                                          : cell(index);
    index += opens(index) ? 2 : 1;
  }
  if (index < size) absl::StrAppend(&cells.back(), " ...");
  return cells;
}

}  // namespace

std::string MarkedGrid(const GridSource& source,
                       const std::vector<int64_t>& positions) {
  PW_CHECK(static_cast<int>(positions.size()) == source.ranks);
  std::vector<int> rows;
  for (int rank = 0;
       rank < source.ranks && static_cast<int>(rows.size()) < kMaxGridRows;
       ++rank) {
    // If not all ranks fit, those that have ended are left out: they say least.
    const bool ended = positions[rank] >= source.size(rank);
    if (source.ranks <= kMaxGridRows || !ended) rows.push_back(rank);
  }
  std::vector<Cells> cells;
  std::array<size_t, 2 * kGridMargin + 1> widths{};
  for (const int rank : rows) {
    cells.push_back(CellsOf(source, rank, positions[rank]));
    for (size_t column = 0; column < widths.size(); ++column) {
      widths[column] = std::max(widths[column], cells.back()[column].size());
    }
  }
  std::string grid;
  const int label_width =
      static_cast<int>(absl::StrCat(source.ranks - 1).size());
  for (size_t row = 0; row < rows.size(); ++row) {
    std::string line = absl::StrFormat("rank %*d:", label_width, rows[row]);
    for (size_t column = 0; column < widths.size(); ++column) {
      if (widths[column] == 0) continue;
      absl::StrAppendFormat(&line, " %-*s", static_cast<int>(widths[column]),
                            cells[row][column]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    absl::StrAppend(&grid, line, "\n");
  }
  if (static_cast<int>(rows.size()) < source.ranks) {
    absl::StrAppend(&grid, "(", source.ranks - static_cast<int>(rows.size()),
                    " more ranks)\n");
  }
  grid.pop_back();
  return grid;
}

std::string BlockedGrid(const Schedule& schedule,
                        const std::vector<int64_t>& positions) {
  return MarkedGrid(
      {.ranks = schedule.pp(),
       .size =
           [&](int rank) {
             return static_cast<int64_t>(schedule.order(rank).size());
           },
       .text =
           [&](int rank, int64_t index) {
             return PassToString(schedule, schedule.order(rank)[index]);
           },
       .opens =
           [&](int rank, int64_t index) {
             return schedule.order(rank)[index].joint_with_next();
           }},
      positions);
}

}  // namespace pipewright
