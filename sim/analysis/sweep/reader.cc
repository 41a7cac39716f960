#include "sim/analysis/sweep/reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/analysis/sweep/leaves.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/store.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kSelect[] =
    "SELECT hash, model_version, status, exit, reason, engine, seed, axes, "
    "shape, leaves, sweep, time_unit, coalesce(iteration_s, iteration_units), "
    "tokens_per_s, mfu, peak_memory_bytes, bubble_global, bubble_per_rank, "
    "fits FROM point";

// What of a report every row has, from the 12th column of kSelect on, and the
// column of the table.
constexpr int kFirstHeadline = 12;
constexpr std::pair<const char*, const char*> kHeadlineColumns[] = {
    {"iteration_s", "coalesce(iteration_s, iteration_units)"},
    {"tokens_per_s", "tokens_per_s"},
    {"mfu", "mfu"},
    {"peak_memory_bytes.max", "peak_memory_bytes"},
    {"bubble_fraction.global", "bubble_global"},
    {"bubble_fraction.per_rank", "bubble_per_rank"},
    {"fits", "fits"}};

// In kSelect; 0 for what is none.
int PlaceOfHeadline(const std::string& column) {
  int place = kFirstHeadline;
  for (const auto& [path, stored] : kHeadlineColumns) {
    if (column == path) return place;
    ++place;
  }
  return 0;
}

SweepCell HeadlineCell(const Statement& from, int place) {
  if (from.IsNull(place)) return {};
  const bool is_fits =
      place ==
      kFirstHeadline + static_cast<int>(std::size(kHeadlineColumns)) - 1;
  return is_fits ? SweepCell::Text(from.Integer(place) != 0 ? "true" : "false")
                 : SweepCell::Number(from.Real(place));
}

constexpr const char* kRowColumns[] = {"hash",          "status",   "exit",
                                       "reason",        "engine",   "seed",
                                       "model_version", "time_unit"};

SweepCell CellOfJson(const Json& value) {
  if (value.is_number()) return SweepCell::Number(value.get<double>());
  if (value.is_string()) return SweepCell::Text(value.get<std::string>());
  return {};
}

SweepCell CellOfRow(const SweepRow& row, const std::string& column,
                    const Statement& from) {
  if (column == "hash") return SweepCell::Text(row.hash);
  if (column == "status") return SweepCell::Text(row.status);
  if (column == "exit") return SweepCell::Number(row.exit);
  if (column == "engine") return SweepCell::Text(row.engine);
  if (column == "model_version") return SweepCell::Number(row.model_version);
  for (const auto& [name, text] : {std::pair("reason", &row.reason),
                                   std::pair("time_unit", &row.time_unit)}) {
    if (column != name) continue;
    return text->empty() ? SweepCell() : SweepCell::Text(*text);
  }
  return from.IsNull(6)
             ? SweepCell()
             : SweepCell::Number(static_cast<double>(from.Integer(6)));
}

bool IsRowColumn(const std::string& column) {
  return std::find(std::begin(kRowColumns), std::end(kRowColumns), column) !=
         std::end(kRowColumns);
}

}  // namespace

bool SweepReader::HasFile(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 &&
         (!S_ISREG(info.st_mode) || info.st_size > 0);
}

absl::StatusOr<std::unique_ptr<SweepReader>> SweepReader::Open(
    const std::string& path) {
  PW_ASSIGN_OR_RETURN(std::unique_ptr<Database> database,
                      Database::Open(path, Database::Mode::kRead));
  PW_RETURN_IF_ERROR(CheckSweepFile(database.get()));
  std::unique_ptr<SweepReader> reader(new SweepReader(std::move(database)));
  PW_RETURN_IF_ERROR(reader->ReadShapes());
  PW_RETURN_IF_ERROR(reader->ReadBases());
  return reader;
}

std::vector<std::string> SweepReader::RowColumns() {
  return {std::begin(kRowColumns), std::end(kRowColumns)};
}

std::vector<std::string> SweepReader::HeadlineColumns() {
  std::vector<std::string> columns = {"time_unit"};
  for (const auto& [path, stored] : kHeadlineColumns) columns.push_back(path);
  return columns;
}

namespace {

absl::Status BadAxes(const std::string& path, absl::string_view of) {
  constexpr char kAllowed[] = "a file that pipewright sweep has written";
  return AboutFile(
      path,
      WithValue(absl::InvalidArgumentError(absl::StrCat(path, ": ", of,
                                                        " has axes that are "
                                                        "none; allowed: ",
                                                        kAllowed)),
                path, kAllowed));
}

bool IsTable(const Json& table) {
  if (table.is_null()) return true;  // of a call that has stored none
  if (!table.is_array()) return false;
  for (const Json& axis : table) {
    if (!axis.is_object() || !axis.contains("names") ||
        !axis.contains("values") || !axis["names"].is_array() ||
        !axis["values"].is_array()) {
      return false;
    }
    for (const Json& name : axis["names"]) {
      if (!name.is_string()) return false;
    }
    for (const Json& value : axis["values"]) {
      if (!value.is_array() || value.size() != axis["names"].size()) {
        return false;
      }
    }
  }
  return true;
}

// "[0,2,-1]", or an object of an older version.
bool IsAxes(absl::string_view text) {
  if (text.empty() || text[0] == '{') return true;
  if (!absl::ConsumePrefix(&text, "[")) return false;
  if (!absl::ConsumeSuffix(&text, "]")) return false;
  for (const absl::string_view number :
       absl::StrSplit(text, ',', absl::SkipEmpty())) {
    int32_t choice = 0;
    if (!absl::SimpleAtoi(number, &choice)) return false;
  }
  return true;
}

}  // namespace

absl::Status SweepReader::ReadShapes() {
  PW_ASSIGN_OR_RETURN(const auto select,
                      database_->Prepare("SELECT id, tree FROM shape"));
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) return absl::OkStatus();
    shapes_[select->Integer(0)] = ParseJson(select->Text(1)).value_or(Json());
  }
}

absl::Status SweepReader::ReadBases() {
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare("SELECT id, base, grid, axes FROM sweep ORDER BY id"));
  // The first call of a grid has its axes.
  std::map<std::string, std::shared_ptr<const Json>> axes_of_grid;
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) return absl::OkStatus();
    std::string base(select->Text(1));
    const auto known = std::find(bases_.begin(), bases_.end(), base);
    base_of_sweep_[select->Integer(0)] =
        static_cast<int>(known - bases_.begin());
    if (known == bases_.end()) bases_.push_back(std::move(base));
    if (select->IsNull(2)) continue;
    auto& axes = axes_of_grid[std::string(select->Text(2))];
    if (axes == nullptr) {
      axes = std::make_shared<const Json>(
          ParseJson(select->Text(3)).value_or(Json()));
      if (!IsTable(*axes)) return BadAxes(database_->path(), "a sweep");
    }
    axes_of_sweep_[select->Integer(0)] = axes;
  }
}

absl::StatusOr<std::set<int>> SweepReader::BasesInUse() const {
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare(
          "SELECT DISTINCT sweep FROM point WHERE model_version = ?"));
  select->BindInteger(0, kModelVersion);
  std::set<int> used;
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) return used;
    const auto base = base_of_sweep_.find(select->Integer(0));
    if (base != base_of_sweep_.end()) used.insert(base->second);
  }
}

absl::StatusOr<std::vector<std::string>> SweepReader::Axes() const {
  // One row of each call tells the axes of all of a grid; rows of older
  // versions tell their own.
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare(
          "SELECT axes, sweep FROM (SELECT axes, sweep, min(id) AS first, "
          "model_version <> ? AS old FROM point GROUP BY sweep, old, CASE WHEN "
          "axes LIKE '{%' THEN (SELECT group_concat(key) FROM json_each(axes)) "
          "END) ORDER BY old, first"));
  select->BindInteger(0, kModelVersion);
  std::vector<std::string> names;
  std::set<std::string> seen;
  const auto add = [&](const std::string& name) {
    if (seen.insert(name).second) names.push_back(name);
  };
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) return names;
    const auto table = axes_of_sweep_.find(select->Integer(1));
    if (absl::StartsWith(select->Text(0), "[") &&
        table != axes_of_sweep_.end()) {
      for (const Json& axis : *table->second) {
        for (const Json& name : axis["names"]) add(name.get<std::string>());
      }
      continue;
    }
    for (const auto& [name, cell] :
         AxesOfText(select->Text(0), select->Integer(1))) {
      add(name);
    }
  }
}

absl::StatusOr<std::vector<std::string>> SweepReader::Columns() const {
  PW_ASSIGN_OR_RETURN(std::vector<std::string> columns, Axes());
  PW_ASSIGN_OR_RETURN(const int64_t has_unit,
                      database_->Integer("SELECT EXISTS(SELECT 1 FROM point "
                                         "WHERE time_unit IS NOT NULL)"));
  if (has_unit != 0) columns.emplace_back("time_unit");
  for (const auto& [path, stored] : kHeadlineColumns) {
    PW_ASSIGN_OR_RETURN(
        const int64_t has_it,
        database_->Integer(absl::StrCat("SELECT EXISTS(SELECT 1 FROM point "
                                        "WHERE ",
                                        stored, " IS NOT NULL)")));
    if (has_it != 0) columns.emplace_back(path);
  }
  std::set<std::string> seen(columns.begin(), columns.end());
  for (const auto& [id, shape] : shapes_) {
    for (std::string& column : ColumnsOfShape(shape)) {
      if (seen.insert(column).second) columns.push_back(std::move(column));
    }
  }
  return columns;
}

absl::Status SweepReader::Visit(
    const std::vector<std::string>& columns, bool all_versions,
    const std::function<absl::Status(const SweepRow&)>& visit) const {
  PW_ASSIGN_OR_RETURN(const std::vector<std::string> axes, Axes());
  // [shape][column]
  std::map<int64_t, std::vector<ColumnOfShape>> places;
  for (const auto& [id, shape] : shapes_) {
    for (const std::string& column : columns) {
      places[id].push_back(FindColumn(shape, column));
    }
  }
  std::set<std::string> unknown;
  for (size_t index = 0; index < columns.size(); ++index) {
    const bool known =
        IsRowColumn(columns[index]) || PlaceOfHeadline(columns[index]) > 0 ||
        std::find(axes.begin(), axes.end(), columns[index]) != axes.end() ||
        std::any_of(places.begin(), places.end(), [index](const auto& of) {
          return !of.second[index].leaves.empty();
        });
    if (!known) unknown.insert(columns[index]);
  }
  // Places in reports that are computed again, by their shape.
  std::map<std::string, std::vector<ColumnOfShape>> places_again;
  const auto no_row_has = [&]() -> absl::Status {
    if (unknown.empty()) return absl::OkStatus();
    PW_ASSIGN_OR_RETURN(std::vector<std::string> all, Columns());
    if (!places_again.empty()) {
      const std::string& tree = places_again.begin()->first;
      for (std::string& column :
           ColumnsOfShape(ParseJson(tree).value_or(Json()))) {
        all.push_back(std::move(column));
      }
    }
    return UnknownName("column", *unknown.begin(), all);
  };
  // Reports that are not stored may have it.
  PW_ASSIGN_OR_RETURN(
      const int64_t not_stored,
      database_->Integer("SELECT EXISTS(SELECT 1 FROM point WHERE leaves IS "
                         "NULL AND time_unit IS NOT NULL)"));
  if (not_stored == 0) PW_RETURN_IF_ERROR(no_row_has());
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare(
          absl::StrCat(kSelect, all_versions ? "" : " WHERE model_version = ?",
                       " ORDER BY id")));
  if (!all_versions) select->BindInteger(0, kModelVersion);
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) return no_row_has();
    SweepRow row;
    row.hash = absl::BytesToHexString(select->Text(0));
    row.model_version = static_cast<int>(select->Integer(1));
    row.current = row.model_version == kModelVersion;
    row.status = std::string(select->Text(2));
    row.exit = static_cast<int>(select->Integer(3));
    row.reason = std::string(select->Text(4));
    row.engine = std::string(select->Text(5));
    row.time_unit = std::string(select->Text(11));
    const auto base = base_of_sweep_.find(select->Integer(10));
    if (base != base_of_sweep_.end()) row.base = base->second;
    if (!IsAxes(select->Text(7))) return BadAxes(database_->path(), "a row");
    row.axes = AxesOfText(select->Text(7), select->Integer(10));
    const auto shape = shapes_.find(select->Integer(8));
    const bool is_stored = shape != shapes_.end();
    Json leaves;
    if (is_stored) {
      absl::StatusOr<Json> list = ParseJson(select->Text(9));
      if (list.ok() && list->is_array()) leaves = *std::move(list);
    }
    // A report that is not stored, when it is first asked for.
    absl::Status failed;
    std::string tree_again;
    const auto needs = [&]() {
      if (is_stored || row.time_unit.empty()) return is_stored;
      if (!tree_again.empty() || !failed.ok()) return failed.ok();
      absl::StatusOr<PointResult> again = Again(row);
      failed = Prefix(database_->path(), again.status());
      if (!failed.ok()) return false;
      tree_again = std::move(again->shape);
      leaves = ParseJson(again->leaves).value_or(Json());
      return true;
    };
    const auto column_of_report = [&](size_t index) -> SweepCell {
      const std::string& column = columns[index];
      const int headline = PlaceOfHeadline(column);
      if (!is_stored && row.time_unit.empty()) return {};
      if (!is_stored && headline > 0) return HeadlineCell(*select, headline);
      if (!needs()) return {};
      if (is_stored) return CellOfColumn(places[shape->first][index], leaves);
      std::vector<ColumnOfShape>& of = places_again[tree_again];
      if (of.empty()) {
        const Json tree = ParseJson(tree_again).value_or(Json());
        for (const std::string& each : columns) {
          of.push_back(FindColumn(tree, each));
          if (!of.back().leaves.empty()) unknown.erase(each);
        }
      }
      return CellOfColumn(of[index], leaves);
    };
    for (size_t index = 0; index < columns.size(); ++index) {
      const std::string& column = columns[index];
      if (IsRowColumn(column)) {
        row.cells.push_back(CellOfRow(row, column, *select));
        continue;
      }
      SweepCell cell;
      for (const auto& [name, value] : row.axes) {
        if (name == column) cell = value;
      }
      if (std::find(axes.begin(), axes.end(), column) == axes.end()) {
        cell = column_of_report(index);
      }
      row.cells.push_back(std::move(cell));
    }
    row.report = [&]() {
      if (!needs()) return Json();
      return JoinTree(
          is_stored ? shape->second : ParseJson(tree_again).value_or(Json()),
          leaves);
    };
    const absl::Status status = visit(row);
    PW_RETURN_IF_ERROR(failed);
    PW_RETURN_IF_ERROR(status);
  }
}

absl::StatusOr<PointResult> SweepReader::Again(const SweepRow& row) const {
  PointHash hash = {};
  const std::string bytes = absl::HexStringToBytes(row.hash);
  if (bytes.size() == hash.size()) {
    std::copy(bytes.begin(), bytes.end(), hash.begin());
  }
  // Another version of the model would give another report.
  if (!row.current || row.base < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the report of a row of model version ", row.model_version,
        " is not stored, and only that version can compute it again; allowed: "
        "without --all-versions"));
  }
  return EvaluateAgain(bases_[row.base], row.axes, row.engine, hash,
                       context_.get());
}

absl::StatusOr<std::set<std::string>> SweepReader::TimeUnits(
    bool all_versions) const {
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare(absl::StrCat(
          "SELECT DISTINCT time_unit FROM point WHERE time_unit IS NOT NULL",
          all_versions ? "" : " AND model_version = ?")));
  if (!all_versions) select->BindInteger(0, kModelVersion);
  std::set<std::string> units;
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) return units;
    units.emplace(select->Text(0));
  }
}

absl::Status SweepReader::VisitHeadlines(
    const std::function<void(const SweepHeadline&)>& visit) const {
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare(
          "SELECT id, hash, sweep, status, exit, reason, time_unit, "
          "coalesce(iteration_s, iteration_units), tokens_per_s FROM point "
          "WHERE model_version = ?"));
  select->BindInteger(0, kModelVersion);
  const auto real = [&select](int column) {
    return select->IsNull(column) ? std::nullopt
                                  : std::optional<double>(select->Real(column));
  };
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) return absl::OkStatus();
    SweepHeadline row = {.id = select->Integer(0),
                         .hash = {},
                         .sweep = select->Integer(2),
                         .status = std::string(select->Text(3)),
                         .exit = static_cast<int>(select->Integer(4)),
                         .reason = std::string(select->Text(5)),
                         .time_unit = std::string(select->Text(6)),
                         .iteration_s = real(7),
                         .tokens_per_s = real(8)};
    const absl::string_view bytes = select->Text(1);
    if (bytes.size() != row.hash.size()) continue;
    std::copy(bytes.begin(), bytes.end(), row.hash.begin());
    visit(row);
  }
}

absl::StatusOr<int64_t> SweepReader::LastSweep() const {
  return database_->Integer("SELECT coalesce(max(id), 0) FROM sweep");
}

std::vector<std::pair<std::string, SweepCell>> SweepReader::AxesOfText(
    absl::string_view text, int64_t sweep) const {
  std::vector<std::pair<std::string, SweepCell>> axes;
  const Json row = ParseJson(text).value_or(Json());
  // Rows of older versions have names and values.
  if (row.is_object()) {
    for (const auto& [name, value] : row.items()) {
      axes.emplace_back(name, CellOfJson(value));
    }
  }
  const auto table = axes_of_sweep_.find(sweep);
  if (!row.is_array() || table == axes_of_sweep_.end()) return axes;
  const Json& of = *table->second;
  for (size_t axis = 0; axis < std::min(row.size(), of.size()); ++axis) {
    const auto choice = row[axis].get<int64_t>();
    const Json& values = of[axis]["values"];
    if (choice < 0 || choice >= static_cast<int64_t>(values.size())) continue;
    const Json& names = of[axis]["names"];
    for (size_t name = 0; name < names.size(); ++name) {
      axes.emplace_back(names[name].get<std::string>(),
                        CellOfJson(values[choice][name]));
    }
  }
  return axes;
}

absl::StatusOr<std::vector<std::pair<std::string, SweepCell>>>
SweepReader::AxesOf(int64_t id) const {
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare("SELECT axes, sweep FROM point WHERE id = ?"));
  select->BindInteger(0, id);
  PW_ASSIGN_OR_RETURN(const bool found, select->Step());
  std::vector<std::pair<std::string, SweepCell>> none;
  if (found && !IsAxes(select->Text(0))) {
    return BadAxes(database_->path(), "a row");
  }
  return found ? AxesOfText(select->Text(0), select->Integer(1)) : none;
}

absl::StatusOr<int64_t> SweepReader::other_versions() const {
  return database_->Integer(absl::StrCat(
      "SELECT count(*) FROM point WHERE model_version <> ", kModelVersion));
}

absl::StatusOr<int64_t> SweepReader::rows() const {
  return database_->Integer(absl::StrCat(
      "SELECT count(*) FROM point WHERE model_version = ", kModelVersion));
}

absl::StatusOr<std::map<std::string, int64_t>> SweepReader::Statuses() const {
  PW_ASSIGN_OR_RETURN(
      const auto select,
      database_->Prepare("SELECT status, count(*) FROM point WHERE "
                         "model_version = ? GROUP BY status"));
  select->BindInteger(0, kModelVersion);
  std::map<std::string, int64_t> counts;
  while (true) {
    PW_ASSIGN_OR_RETURN(const bool found, select->Step());
    if (!found) return counts;
    counts[std::string(select->Text(0))] = select->Integer(1);
  }
}

}  // namespace pipewright
