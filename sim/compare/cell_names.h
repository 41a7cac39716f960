// Groups of cells (factors.h) in words.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/compare/factors.h"

namespace pipewright {

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
