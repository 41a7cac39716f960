#include "sim/analysis/sweep/export.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/base/file.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

// A file that appears under its name when all of it is there.
class RowFile {
 public:
  explicit RowFile(std::string path)
      : path_(std::move(path)),
        in_place_(IsDescriptor(path_)),
        temporary_(in_place_ ? path_ : absl::StrCat(path_, ".part")),
        file_(std::fopen(temporary_.c_str(), "w")) {}
  ~RowFile() {
    if (file_ == nullptr) return;
    std::fclose(file_);
    if (!in_place_) std::remove(temporary_.c_str());
  }
  RowFile(const RowFile&) = delete;

  absl::Status Add(absl::string_view line) {
    if (file_ != nullptr &&
        std::fwrite(line.data(), 1, line.size(), file_) == line.size()) {
      return absl::OkStatus();
    }
    return Error();
  }
  absl::Status Finish() {
    std::FILE* const file = file_;
    file_ = nullptr;
    if (std::fclose(file) != 0) return Error();
    if (!in_place_ && std::rename(temporary_.c_str(), path_.c_str()) != 0) {
      return Error();
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Error() const {
    const int code = errno;
    if (!in_place_) std::remove(temporary_.c_str());
    return absl::InternalError(
        absl::StrCat(path_, ": cannot be written: ", std::strerror(code)));
  }

  const std::string path_;
  const bool in_place_;
  const std::string temporary_;
  std::FILE* file_;
};

std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

std::string CsvLine(const std::vector<std::string>& fields) {
  std::string line;
  for (size_t index = 0; index < fields.size(); ++index) {
    absl::StrAppend(&line, index > 0 ? "," : "", CsvField(fields[index]));
  }
  return line + "\n";
}

absl::StatusOr<std::vector<std::string>> CsvColumns(
    const SweepReader& reader, const std::vector<std::string>& asked) {
  if (!asked.empty()) return asked;
  PW_ASSIGN_OR_RETURN(const std::vector<std::string> all, reader.Columns());
  PW_ASSIGN_OR_RETURN(const std::vector<std::string> axes, reader.Axes());
  std::vector<std::string> columns = {"hash", "status", "exit"};
  columns.insert(columns.end(), axes.begin(), axes.end());
  for (const std::string& headline : SweepReader::HeadlineColumns()) {
    if (std::find(all.begin(), all.end(), headline) != all.end()) {
      columns.push_back(headline);
    }
  }
  columns.push_back("reason");
  return columns;
}

// A column of the file. One of times that some rows have in seconds and others
// in units of a pass is two.
struct CsvColumn {
  std::string name;
  std::string unit;  // of the rows that have it; "": of all
  size_t cell = 0;
};

std::vector<CsvColumn> NamedColumns(const std::vector<std::string>& asked,
                                    const std::vector<std::string>& axes,
                                    const std::set<std::string>& units) {
  std::vector<CsvColumn> columns;
  for (size_t cell = 0; cell < asked.size(); ++cell) {
    const bool is_axis =
        std::find(axes.begin(), axes.end(), asked[cell]) != axes.end();
    const std::string unit_of_pass = TimeUnitName(/*in_units=*/true);
    if (is_axis || !IsTimePath(asked[cell]) || !units.contains(unit_of_pass)) {
      columns.push_back({asked[cell], "", cell});
      continue;
    }
    for (const std::string& unit : units) {
      columns.push_back(
          {unit == unit_of_pass ? PathInUnits(asked[cell]) : asked[cell], unit,
           cell});
    }
  }
  return columns;
}

absl::Status Stopped(const SweepExport& out) {
  return absl::CancelledError(
      absl::StrCat(out.path, ": stopped by a signal, and not written"));
}

Json JsonOfCell(const SweepCell& cell) {
  if (cell.kind == SweepCell::Kind::kNumber) return cell.number;
  if (cell.kind == SweepCell::Kind::kText) return cell.text;
  return nullptr;
}

}  // namespace

absl::Status ExportCsv(const SweepReader& reader, const SweepExport& out) {
  PW_ASSIGN_OR_RETURN(const std::vector<std::string> columns,
                      CsvColumns(reader, out.columns));
  PW_ASSIGN_OR_RETURN(const std::vector<std::string> axes, reader.Axes());
  PW_ASSIGN_OR_RETURN(const std::set<std::string> units,
                      reader.TimeUnits(out.all_versions));
  const std::vector<CsvColumn> named = NamedColumns(columns, axes, units);
  RowFile file(out.path);
  std::vector<std::string> header;
  for (const CsvColumn& column : named) header.push_back(column.name);
  PW_RETURN_IF_ERROR(file.Add(CsvLine(header)));
  PW_RETURN_IF_ERROR(
      reader.Visit(columns, out.all_versions, [&](const SweepRow& row) {
        if (out.stops && out.stops()) return Stopped(out);
        std::vector<std::string> fields;
        for (const CsvColumn& column : named) {
          const bool has = column.unit.empty() || column.unit == row.time_unit;
          fields.push_back(has ? ToString(row.cells[column.cell]) : "");
        }
        return file.Add(CsvLine(fields));
      }));
  return file.Finish();
}

absl::Status ExportJsonLines(const SweepReader& reader,
                             const SweepExport& out) {
  RowFile file(out.path);
  PW_RETURN_IF_ERROR(file.Add(""));
  PW_RETURN_IF_ERROR(
      reader.Visit(out.columns, out.all_versions, [&](const SweepRow& row) {
        if (out.stops && out.stops()) return Stopped(out);
        Json line = {
            {"hash", row.hash},
            {"current", row.current},
            {"model_version", row.model_version},
            {"status", row.status},
            {"exit", row.exit},
            {"reason", row.reason.empty() ? Json() : Json(row.reason)},
            {"engine", row.engine},
            {"time_unit", row.time_unit.empty() ? Json() : Json(row.time_unit)},
            {"axes", Json::object()}};
        for (const auto& [name, cell] : row.axes) {
          line["axes"][name] = JsonOfCell(cell);
        }
        if (out.columns.empty()) {
          line["report"] = row.report();
        } else {
          for (size_t index = 0; index < out.columns.size(); ++index) {
            line["columns"][out.columns[index]] = JsonOfCell(row.cells[index]);
          }
        }
        return file.Add(absl::StrCat(line.dump(), "\n"));
      }));
  return file.Finish();
}

}  // namespace pipewright
