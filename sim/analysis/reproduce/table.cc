#include "sim/analysis/reproduce/table.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/model/model.h"

namespace pipewright {

// Embedded by CMakeLists.txt: (path without ending, content).
const std::vector<std::pair<std::string, std::string>>& EmbeddedPaperTables();

namespace {

std::vector<std::string> CellsOf(absl::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (const char letter : line) {
    if (letter == '"') {
      quoted = !quoted;
    } else if (letter == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back().push_back(letter);
    }
  }
  return cells;
}

// Do both agree in the columns that both have?
bool Agree(const TableRow& row, const TableRow& other) {
  return std::all_of(
      other.cells().begin(), other.cells().end(), [&row](const auto& cell) {
        const auto own = row.cells().find(cell.first);
        return own == row.cells().end() || own->second == cell.second;
      });
}

// None if there is no such file.
std::vector<TableRow> RowsOf(absl::string_view path) {
  std::vector<TableRow> rows;
  std::vector<std::string> columns;
  for (const auto& [name, content] : EmbeddedPaperTables()) {
    if (name != path) continue;
    for (const absl::string_view line :
         absl::StrSplit(content, '\n', absl::SkipEmpty())) {
      if (line[0] == '#') continue;
      const std::vector<std::string> cells = CellsOf(line);
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
  return rows;
}

}  // namespace

bool TableRow::Has(const std::string& column) const {
  const auto cell = cells_.find(column);
  return cell != cells_.end() && !cell->second.empty();
}

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

std::string TableRow::Fill(const std::string& text) const {
  std::vector<std::pair<std::string, std::string>> words;
  for (const auto& [column, cell] : cells_) {
    words.emplace_back(absl::StrCat("{", column, "}"), cell);
  }
  return absl::StrReplaceAll(text, words);
}

void TableRow::Take(const TableRow& other) {
  for (const auto& [column, cell] : other.cells_) {
    std::string& own = cells_[column];
    if (!cell.empty()) own = cell;
  }
}

std::vector<std::string> FoldersWith(absl::string_view name) {
  std::vector<std::string> folders;
  for (const auto& [path, content] : EmbeddedPaperTables()) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(path, '/');
    if (parts.second == name) folders.push_back(parts.first);
  }
  return folders;
}

std::vector<TableRow> ReadTable(absl::string_view path) {
  std::vector<TableRow> rows = RowsOf(path);
  PW_CHECK(!rows.empty());
  return rows;
}

void JoinTable(absl::string_view path, std::vector<TableRow>* rows) {
  const std::vector<TableRow> others = RowsOf(path);
  if (others.empty()) return;
  std::map<std::string, std::string> columns;
  for (const auto& [column, cell] : others[0].cells()) columns[column] = "";
  for (TableRow& row : *rows) {
    const auto other =
        std::find_if(others.begin(), others.end(),
                     [&row](const TableRow& each) { return Agree(row, each); });
    row.Take(other == others.end() ? TableRow(columns) : *other);
  }
}

absl::StatusOr<RunConfig> ConfigOf(const TableRow& row,
                                   const std::string& engine) {
  std::vector<ConfigEdit> fields = {{.path = "engine", .value = engine}};
  for (const auto& [column, cell] : row.cells()) {
    if (cell.empty() || !absl::StrContains(column, '.')) continue;
    fields.push_back(
        {.path = column, .value = absl::StrReplaceAll(cell, {{" ", ","}})});
  }
  if (row.Has("model") && FindModel(row.Text("model")).ok()) {
    fields.push_back({.path = "model.preset", .value = row.Text("model")});
  }
  PW_ASSIGN_OR_RETURN(RunConfig config, ReadConfig("", "", {fields}));
  // Messages name the fields alone.
  config.origins.clear();
  // A row says all of its sizes, and some are about memory alone.
  config.only_order = true;
  if (config.schedule.name) return config;
  // The plain schedules of Megatron-LM and of torchtitan (Schedule1F1B of
  // torch/distributed/pipelining/schedules.py) post the transfers of a forward
  // and a backward together; the interleaved ones overlap them.
  const bool is_interleaved = config.strategy.vpp.value_or(1) > 1;
  config.schedule.name = is_interleaved ? "interleaved-1f1b" : "1f1b";
  if (!is_interleaved && config.system.preset) {
    config.strategy.waiting = WaitRule::kBatched;
  }
  return config;
}

}  // namespace pipewright
