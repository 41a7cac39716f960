#include "sim/reproduce/table.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"

namespace pipewright {

// Embedded by CMakeLists.txt: (path without ending, content).
const std::vector<std::pair<std::string, std::string>>& EmbeddedPaperTables();

const std::string& TableRow::Text(const std::string& column) const {
  const auto cell = cells_.find(column);
  PW_CHECK(cell != cells_.end());
  return cell->second;
}

int TableRow::Integer(const std::string& column) const {
  int value = 0;
  PW_CHECK(absl::SimpleAtoi(Text(column), &value));
  return value;
}

double TableRow::Number(const std::string& column) const {
  double value = 0;
  PW_CHECK(absl::SimpleAtod(Text(column), &value));
  return value;
}

bool HasTable(absl::string_view path) {
  for (const auto& [name, content] : EmbeddedPaperTables()) {
    if (name == path) return true;
  }
  return false;
}

std::vector<TableRow> ReadTable(absl::string_view path) {
  std::vector<TableRow> rows;
  std::vector<std::string> columns;
  for (const auto& [name, content] : EmbeddedPaperTables()) {
    if (name != path) continue;
    for (const absl::string_view line :
         absl::StrSplit(content, '\n', absl::SkipEmpty())) {
      if (line[0] == '#') continue;
      const std::vector<std::string> cells = absl::StrSplit(line, ',');
      if (columns.empty()) {
        columns = cells;
        continue;
      }
      PW_CHECK(cells.size() == columns.size());
      std::map<std::string, std::string> row;
      for (size_t column = 0; column < cells.size(); ++column) {
        row[columns[column]] = cells[column];
      }
      rows.emplace_back(std::move(row));
    }
  }
  PW_CHECK(!rows.empty());
  return rows;
}

}  // namespace pipewright
