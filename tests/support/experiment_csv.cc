#include "tests/support/experiment_csv.h"

#include <catch2/catch.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"

namespace pipewright::testing {
namespace {

std::vector<std::string> CellsOf(absl::string_view line) {
  std::vector<std::string> cells(1);
  bool is_quoted = false;
  for (const char letter : absl::StripSuffix(line, "\r")) {
    if (letter == '"') {
      is_quoted = !is_quoted;
    } else if (letter == ',' && !is_quoted) {
      cells.emplace_back();
    } else {
      cells.back().push_back(letter);
    }
  }
  return cells;
}

}  // namespace

std::vector<ExperimentRow> ExperimentRows(absl::string_view file) {
  const auto text = ReadFile(SourcePath(absl::StrCat("experiments/", file)),
                             InputKind::kProfile);
  INFO(file);
  REQUIRE(text.ok());
  std::vector<ExperimentRow> rows;
  std::vector<std::string> columns;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> cells = CellsOf(line);
    if (columns.empty()) {
      columns = cells;
      continue;
    }
    if (cells.size() != columns.size()) continue;
    ExperimentRow& row = rows.emplace_back();
    for (size_t at = 0; at < cells.size(); ++at) row[columns[at]] = cells[at];
  }
  REQUIRE_FALSE(rows.empty());
  return rows;
}

double NumberIn(const ExperimentRow& row, const std::string& column) {
  double value = 0;
  REQUIRE(row.contains(column));
  REQUIRE(absl::SimpleAtod(row.at(column), &value));
  return value;
}

}  // namespace pipewright::testing
