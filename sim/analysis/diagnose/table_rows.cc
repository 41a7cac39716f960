#include "sim/analysis/diagnose/table_rows.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

struct KindRow {
  const char* name;
  const char* family;
  bool communication;
};

// In the order of TableKind. layernorm-grads-all-reduce is a message, but its
// group is not known, so that it stands alone.
constexpr KindRow kKindRows[] = {
    {"forward-compute", "forward-compute", false},
    {"backward-compute", "backward-compute", false},
    {"forward-send", "forward-pp-comm", true},
    {"forward-recv", "forward-pp-comm", true},
    {"backward-send", "backward-pp-comm", true},
    {"backward-recv", "backward-pp-comm", true},
    {"params-all-gather", "params-all-gather", true},
    {"grads-reduce-scatter", "grads-reduce-scatter", true},
    {"layernorm-grads-all-reduce", "layernorm-grads-all-reduce", true},
    {"embedding-grads-all-reduce", "embedding-grads-all-reduce", true},
    {"separate-grads-all-reduce", "separate-grads-all-reduce", true},
    {"optimizer-clip-main-grad", "optimizer-clip-main-grad", true},
    {"optimizer", "optimizer", false},
    {"gc", "gc", false},
};
static_assert(std::size(kKindRows) == kNumTableKinds);

enum Column {
  kStep,
  kReplica,
  kStage,
  kKind,
  kNumber,
  kMicrobatch,
  kChunk,
  kStart,
  kDuration,
  kNumColumns,
};

struct ColumnRow {
  const char* name;
  int64_t least;
  int64_t most;
};

// The limits are beyond any run, and keep sums within 64 bits.
constexpr ColumnRow kColumnRows[] = {
    {"step", 0, 1'000'000'000'000},
    {"dp_rank", 0, 1 << 20},
    {"stage", 0, 1 << 16},
    {"optype", 0, 0},
    {"seq", 0, 1 << 20},
    {"mb", -1, 1 << 20},
    {"chunk", -1, 1023},
    {"start_ns", 0, 4'000'000'000'000'000'000},
    {"duration_ns", 0, 1'000'000'000'000'000},
};
static_assert(std::size(kColumnRows) == kNumColumns);

constexpr size_t kMostRows = 50'000'000;
constexpr size_t kLongestLine = 4096;
constexpr size_t kReadPiece = 1 << 16;

std::vector<std::string> KindNames() {
  std::vector<std::string> names;
  for (const KindRow& row : kKindRows) names.emplace_back(row.name);
  return names;
}

// Lines of a stream, none of them without end.
class LineReader {
 public:
  explicit LineReader(std::istream& in) : in_(in), piece_(kReadPiece, '\0') {}

  // False at the end. A line that is too long is cut.
  bool Next(std::string* line) {
    line->clear();
    bool any = false;
    while (true) {
      if (at_ == size_) {
        in_.read(piece_.data(), static_cast<std::streamsize>(kReadPiece));
        size_ = static_cast<size_t>(in_.gcount());
        at_ = 0;
        if (size_ == 0) return any;
      }
      any = true;
      const size_t end = std::min(piece_.find('\n', at_), size_);
      line->append(piece_, at_, end - at_);
      at_ = end;
      if (line->size() > kLongestLine) return true;
      if (end == size_) continue;
      ++at_;
      if (!line->empty() && line->back() == '\r') line->pop_back();
      return true;
    }
  }

 private:
  std::istream& in_;
  std::string piece_;
  size_t at_ = 0;
  size_t size_ = 0;
};

class RowReader {
 public:
  explicit RowReader(const std::string& source) : source_(source) {
    places_.fill(-1);
  }

  absl::Status Header(const std::string& line) {
    const std::vector<std::string> names = absl::StrSplit(line, ',');
    for (size_t place = 0; place < names.size(); ++place) {
      const absl::string_view name = absl::StripAsciiWhitespace(names[place]);
      for (int column = 0; column < kNumColumns; ++column) {
        if (name != kColumnRows[column].name) continue;
        if (places_[column] >= 0) {
          return BadValue(FieldPlace::InFile(source_, 1, name), "given twice",
                          "each column once");
        }
        places_[column] = static_cast<int>(place);
      }
    }
    for (int column = 0; column < kNumColumns; ++column) {
      if (places_[column] >= 0) continue;
      std::vector<std::string> all;
      for (const ColumnRow& row : kColumnRows) all.emplace_back(row.name);
      return MissingValue(
          FieldPlace::InFile(source_, 1, kColumnRows[column].name),
          absl::StrCat("a first line with the columns ",
                       absl::StrJoin(all, ",")));
    }
    columns_ = names.size();
    return absl::OkStatus();
  }

  absl::StatusOr<OpRow> Row(const std::string& line, int64_t number) {
    fields_ = absl::StrSplit(line, ',');
    if (fields_.size() != columns_) {
      return WithValue(InFile(source_, number,
                              absl::InvalidArgumentError(
                                  absl::StrCat("a row of ", fields_.size(),
                                               " fields; allowed: ", columns_,
                                               ", as the first line has"))),
                       absl::StrCat(fields_.size()), absl::StrCat(columns_));
    }
    line_ = number;
    OpRow row;
    row.line = number;
    PW_ASSIGN_OR_RETURN(row.step, Whole(kStep));
    PW_ASSIGN_OR_RETURN(row.start_ns, Whole(kStart));
    PW_ASSIGN_OR_RETURN(row.duration_ns, Whole(kDuration));
    PW_RETURN_IF_ERROR(Put(kReplica, &row.replica));
    PW_RETURN_IF_ERROR(Put(kStage, &row.stage));
    PW_RETURN_IF_ERROR(Put(kNumber, &row.number));
    PW_RETURN_IF_ERROR(Put(kChunk, &row.chunk));
    row.chunk = std::max<int16_t>(row.chunk, 0);
    PW_RETURN_IF_ERROR(Whole(kMicrobatch).status());
    const absl::string_view kind = Field(kKind);
    for (int index = 0; index < kNumTableKinds; ++index) {
      if (kind != kKindRows[index].name) continue;
      row.kind = static_cast<TableKind>(index);
      return row;
    }
    return WithValue(
        Prefix(FieldPlace::InFile(source_, line_, kColumnRows[kKind].name),
               UnknownName("operation", kind, KindNames())),
        kind, absl::StrJoin(KindNames(), ", "));
  }

 private:
  absl::string_view Field(Column column) const {
    return absl::StripAsciiWhitespace(fields_[places_[column]]);
  }

  absl::StatusOr<int64_t> Whole(Column column) const {
    const ColumnRow& row = kColumnRows[column];
    int64_t value = 0;
    if (absl::SimpleAtoi(Field(column), &value) && value >= row.least &&
        value <= row.most) {
      return value;
    }
    return BadValue(
        FieldPlace::InFile(source_, line_, row.name), Field(column),
        absl::StrCat("an integer from ", row.least, " to ", row.most));
  }

  template <typename Integer>
  absl::Status Put(Column column, Integer* target) const {
    PW_ASSIGN_OR_RETURN(const int64_t value, Whole(column));
    *target = static_cast<Integer>(value);
    return absl::OkStatus();
  }

  const std::string& source_;
  std::array<int, kNumColumns> places_{};
  size_t columns_ = 0;
  std::vector<absl::string_view> fields_;
  int64_t line_ = 0;
};

}  // namespace

absl::string_view TableKindName(TableKind kind) {
  return kKindRows[static_cast<int>(kind)].name;
}

absl::string_view TableKindFamily(TableKind kind) {
  return kKindRows[static_cast<int>(kind)].family;
}

bool IsCommunication(TableKind kind) {
  return kKindRows[static_cast<int>(kind)].communication;
}

absl::StatusOr<std::deque<OpRow>> ReadTableRows(std::istream& in,
                                                const std::string& source) {
  LineReader lines(in);
  RowReader reader(source);
  std::deque<OpRow> rows;
  std::string line;
  for (int64_t number = 1; lines.Next(&line); ++number) {
    if (line.size() > kLongestLine) {
      return InFile(source, number,
                    absl::InvalidArgumentError(absl::StrCat(
                        "a line of more than ", kLongestLine,
                        " bytes; allowed: a table with one operation a line")));
    }
    if (number == 1) {
      PW_RETURN_IF_ERROR(reader.Header(line));
      continue;
    }
    if (line.empty()) continue;
    PW_ASSIGN_OR_RETURN(const OpRow row, reader.Row(line, number));
    rows.push_back(row);
    if (rows.size() > kMostRows) {
      return InFile(source, number,
                    absl::InvalidArgumentError(absl::StrCat(
                        "more than ", kMostRows,
                        " operations; allowed: a part of the steps")));
    }
  }
  if (rows.empty()) {
    return InFile(source, 0,
                  absl::InvalidArgumentError(
                      "holds no operations; allowed: a table with one "
                      "operation a line"));
  }
  return rows;
}

}  // namespace pipewright
