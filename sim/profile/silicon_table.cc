#include "sim/profile/silicon_table.h"

#include <zlib.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/gzip.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kSiliconHeader[] = "pipewright-silicon 1";
constexpr double kLargestSize = 1e15;
constexpr double kLongestMicroseconds = 1e12;
constexpr double kLargestErrorPercent = 1000;

struct SiliconKind {
  const char* name;
  int words;  // with the name
  std::vector<std::string> columns;
};

const std::vector<SiliconKind>& Kinds() {
  static const auto* kinds = new std::vector<SiliconKind>{
      {"gemm", 3, {"m", "n", "k"}},
      {"attention", 5, {"heads", "seq"}},
      {"window", 4, {"heads", "seq", "window"}},
      {"norm", 3, {"rows", "cols"}},
      {"experts", 2, {"groups", "rows", "hidden", "inner"}},
      {"cast", 3, {"rows", "cols"}},
      {"nccl", 3, {"gpus", "bytes"}}};
  return *kinds;
}

const SiliconKind* FindKind(absl::string_view name) {
  for (const SiliconKind& kind : Kinds()) {
    if (name == kind.name) return &kind;
  }
  return nullptr;
}

class SiliconReader {
 public:
  SiliconReader(absl::string_view text, absl::string_view source)
      : rest_(text), source_(source) {}

  absl::StatusOr<std::vector<SiliconTable>> Read() {
    absl::string_view line;
    if (!Next(&line) || line != kSiliconHeader) {
      return At("header", line, absl::StrCat("the line ", kSiliconHeader));
    }
    while (Next(&line)) {
      PW_RETURN_IF_ERROR(absl::StartsWith(line, "table ") ? Begin(line)
                                                          : Row(line));
    }
    PW_RETURN_IF_ERROR(Finish());
    return std::move(tables_);
  }

 private:
  // The next line that says something.
  bool Next(absl::string_view* line) {
    while (!rest_.empty()) {
      const size_t end = rest_.find('\n');
      *line = rest_.substr(0, end);
      rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
      ++number_;
      if (!line->empty() && line->back() == '\r') line->remove_suffix(1);
      if (!line->empty() && line->front() != '#') return true;
    }
    *line = "";
    return false;
  }

  absl::Status At(absl::string_view field, absl::string_view value,
                  absl::string_view allowed) const {
    return BadValue(FieldPlace::InFile(source_, number_, field),
                    value.substr(0, 80), allowed);
  }

  absl::Status Begin(absl::string_view line) {
    PW_RETURN_IF_ERROR(Finish());
    SiliconTable table;
    table.words = absl::StrSplit(line.substr(6), ' ', absl::SkipEmpty());
    kind_ = table.words.empty() ? nullptr : FindKind(table.words[0]);
    if (kind_ == nullptr ||
        static_cast<int>(table.words.size()) != kind_->words) {
      return At("table", line.substr(6),
                "gemm TYPE LAYOUT, attention TYPE PASS MASK HEAD_DIM, window "
                "TYPE PASS HEAD_DIM, norm KIND PASS, experts TYPE, nccl "
                "OPERATION TYPE");
    }
    if (FindTable(tables_, table.words) != nullptr) {
      return At("table", line.substr(6), "each table once");
    }
    table.sizes = static_cast<int>(kind_->columns.size());
    const std::string columns =
        absl::StrCat(absl::StrJoin(kind_->columns, ","), ",us,error_percent");
    absl::string_view header;
    if (!Next(&header) || header != columns) {
      return At("columns", header, columns);
    }
    tables_.push_back(std::move(table));
    lines_.clear();
    return absl::OkStatus();
  }

  std::string ColumnName(int column) const {
    const int sizes = static_cast<int>(kind_->columns.size());
    if (column < sizes) return kind_->columns[column];
    return column == sizes ? "us" : "error_percent";
  }

  absl::Status Row(absl::string_view line) {
    if (tables_.empty()) {
      return At("table", line, "a line 'table ...' before the numbers");
    }
    SiliconTable& table = tables_.back();
    const int width = table.width();
    const char* at = line.data();
    const char* const end = at + line.size();
    for (int column = 0; column < width; ++column) {
      double value = 0;
      const auto [next, error] = std::from_chars(at, end, value);
      const bool is_last = column + 1 == width;
      const char* const stop = std::find(at, end, ',');
      if (error != std::errc() || next != stop || is_last != (stop == end)) {
        return At(ColumnName(column), absl::string_view(at, stop - at),
                  absl::StrCat("a number, in a row of ", width));
      }
      const absl::string_view text(at, stop - at);
      if (column < table.sizes
              ? !(value >= 1 && value <= kLargestSize &&
                  value == std::floor(value))
              : !(value > 0 && value <= (is_last ? kLargestErrorPercent
                                                 : kLongestMicroseconds))) {
        return At(ColumnName(column), text,
                  column < table.sizes ? "an integer from 1 on"
                  : is_last            ? "a number above 0, at most 1000"
                                       : "a finite number above 0");
      }
      if (column == table.sizes) value *= 1e-6;
      if (column == table.sizes + 1) value *= 1e-2;
      table.values.push_back(value);
      at = stop == end ? end : stop + 1;
    }
    lines_.push_back(number_);
    return absl::OkStatus();
  }

  // Sorts the rows and looks for a shape that stands there twice.
  absl::Status Finish() {
    if (tables_.empty()) return absl::OkStatus();
    SiliconTable& table = tables_.back();
    const int rows = table.rows();
    if (rows == 0) {
      return At("table", absl::StrJoin(table.words, " "), "rows of numbers");
    }
    const auto less = [&](int a, int b) {
      return std::lexicographical_compare(
          table.row(a), table.row(a) + table.sizes, table.row(b),
          table.row(b) + table.sizes);
    };
    bool is_sorted = true;
    for (int row = 1; is_sorted && row < rows; ++row) {
      is_sorted = less(row - 1, row);
    }
    if (is_sorted) return absl::OkStatus();
    std::vector<int> order(rows);
    for (int row = 0; row < rows; ++row) order[row] = row;
    std::stable_sort(order.begin(), order.end(), less);
    std::vector<double> values;
    values.reserve(table.values.size());
    for (int place = 0; place < rows; ++place) {
      const int row = order[place];
      if (place > 0 && !less(order[place - 1], row)) {
        number_ = lines_[row];
        std::vector<std::string> sizes;
        for (int column = 0; column < table.sizes; ++column) {
          sizes.push_back(absl::StrCat(table.row(row)[column]));
        }
        return At(absl::StrJoin(kind_->columns, ","), absl::StrJoin(sizes, ","),
                  absl::StrCat("each shape once (line ",
                               lines_[order[place - 1]], " has it)"));
      }
      values.insert(values.end(), table.row(row),
                    table.row(row) + table.width());
    }
    table.values = std::move(values);
    return absl::OkStatus();
  }

  absl::string_view rest_;
  absl::string_view source_;
  int64_t number_ = 0;
  const SiliconKind* kind_ = nullptr;
  std::vector<SiliconTable> tables_;
  std::vector<int64_t> lines_;  // lines of the last table's rows
};

}  // namespace

std::vector<std::string> SiliconColumns(absl::string_view kind) {
  const SiliconKind* found = FindKind(kind);
  return found == nullptr ? std::vector<std::string>() : found->columns;
}

std::vector<std::string> SiliconKinds() {
  std::vector<std::string> names;
  for (const SiliconKind& kind : Kinds()) names.push_back(kind.name);
  return names;
}

absl::StatusOr<std::vector<SiliconTable>> ReadSiliconTables(
    absl::string_view text, absl::string_view source) {
  return SiliconReader(text, source).Read();
}

const SiliconTable* FindTable(const std::vector<SiliconTable>& tables,
                              const std::vector<std::string>& words) {
  for (const SiliconTable& table : tables) {
    if (table.words == words) return &table;
  }
  return nullptr;
}

std::string SiliconToText(const std::vector<SiliconTable>& tables,
                          const std::vector<std::string>& notes) {
  std::string text = absl::StrCat(kSiliconHeader, "\n");
  for (const std::string& note : notes)
    absl::StrAppend(&text, "# ", note, "\n");
  for (const SiliconTable& table : tables) {
    absl::StrAppend(&text, "table ", absl::StrJoin(table.words, " "), "\n",
                    absl::StrJoin(SiliconColumns(table.words[0]), ","),
                    ",us,error_percent\n");
    for (int row = 0; row < table.rows(); ++row) {
      for (int column = 0; column < table.sizes; ++column) {
        absl::StrAppendFormat(&text, "%.0f,", table.row(row)[column]);
      }
      absl::StrAppendFormat(&text, "%.6g,%.4g\n", 1e6 * table.seconds(row),
                            1e2 * table.error(row));
    }
  }
  return text;
}

// The tables that ship, unpacked when somebody asks for them.

// Made at build time (cmake/embed.cmake).
const std::vector<std::pair<std::string, absl::string_view>>& EmbeddedSilicon();

namespace {

// A whole gzip file that we packed ourselves.
std::string Unpacked(absl::string_view packed) {
  z_stream zlib = {};
  PW_CHECK(inflateInit2(&zlib, 15 + 16) == Z_OK);
  zlib.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
  zlib.avail_in = static_cast<uInt>(packed.size());
  std::string text;
  text.resize(packed.size() * 8);
  int code = Z_OK;
  while (code == Z_OK) {
    if (zlib.total_out == text.size()) text.resize(2 * text.size());
    zlib.next_out = reinterpret_cast<Bytef*>(&text[zlib.total_out]);
    zlib.avail_out = static_cast<uInt>(text.size() - zlib.total_out);
    code = inflate(&zlib, Z_NO_FLUSH);
  }
  PW_CHECK(code == Z_STREAM_END);
  text.resize(zlib.total_out);
  inflateEnd(&zlib);
  return text;
}

}  // namespace

std::vector<std::string> ShippedSiliconNames() {
  std::vector<std::string> names;
  for (const auto& file : EmbeddedSilicon()) names.push_back(file.first);
  std::sort(names.begin(), names.end());
  return names;
}

const std::vector<SiliconTable>* ShippedSilicon(const std::string& name) {
  static std::mutex mutex;
  static auto* const read =
      new std::map<std::string, std::unique_ptr<std::vector<SiliconTable>>>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = read->find(name);
  if (found != read->end()) return found->second.get();
  for (const auto& [file, packed] : EmbeddedSilicon()) {
    if (file != name) continue;
    absl::StatusOr<std::vector<SiliconTable>> tables =
        ReadSiliconTables(Unpacked(packed), name);
    PW_CHECK(tables.ok());
    return read
        ->emplace(name, std::make_unique<std::vector<SiliconTable>>(
                            *std::move(tables)))
        .first->second.get();
  }
  return nullptr;
}

absl::StatusOr<std::vector<SiliconTable>> ReadSiliconFile(
    const std::string& path) {
  PW_ASSIGN_OR_RETURN(const std::unique_ptr<InputFile> in,
                      InputFile::Open(path, InputKind::kProfile));
  const std::string text((std::istreambuf_iterator<char>(in->stream())),
                         std::istreambuf_iterator<char>());
  PW_RETURN_IF_ERROR(in->status());
  return ReadSiliconTables(text, path);
}

}  // namespace pipewright
