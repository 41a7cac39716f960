#include "sim/compare/cell_names.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace pipewright {
namespace {

// "0-2, 5" of 0, 1, 2, 5.
std::string RanksText(const std::vector<Column>& places) {
  std::vector<std::string> texts;
  for (size_t begin = 0; begin < places.size();) {
    size_t end = begin + 1;
    while (end < places.size() &&
           places[end].first == places[end - 1].first + 1) {
      ++end;
    }
    // Two are no range.
    if (end - begin == 2) --end;
    texts.push_back(absl::StrCat(places[begin].first));
    if (end - begin > 1) {
      absl::StrAppend(&texts.back(), "-", places[end - 1].first);
    }
    begin = end;
  }
  return absl::StrJoin(texts, ", ");
}

}  // namespace

CellNames NameCells(absl::string_view all, const std::vector<std::string>& rows,
                    const std::vector<Column>& columns,
                    const std::vector<Cell>& cells) {
  std::set<std::string> all_rows;
  std::set<Column> all_columns;  // in these rows
  for (const Cell& cell : cells) {
    all_rows.insert(cell.row);
    if (std::binary_search(rows.begin(), rows.end(), cell.row)) {
      all_columns.insert(cell.column);
    }
  }
  CellNames names;
  if (rows.size() < all_rows.size()) names.kinds = rows;
  const std::string what =
      names.kinds.empty() ? std::string(all) : absl::StrJoin(names.kinds, ", ");
  const bool everywhere =
      columns.size() == all_columns.size() && columns.size() > 1;
  if (everywhere || columns[0].first < 0) {
    names.text = absl::StrCat(what, " on all ranks");
    return names;
  }
  names.places = columns;
  if (columns[0].second >= 0) {
    names.text = absl::StrCat(
        what, " ",
        absl::StrJoin(columns, ", ", [](std::string* out, Column link) {
          absl::StrAppend(out, "rank ", link.first, " -> ", link.second);
        }));
    return names;
  }
  const std::string place = absl::StrCat(
      columns.size() == 1 ? "rank " : "ranks ", RanksText(columns));
  names.text = names.kinds.empty() ? absl::StrCat(place, ": ", what)
                                   : absl::StrCat(what, " on ", place);
  return names;
}

}  // namespace pipewright
