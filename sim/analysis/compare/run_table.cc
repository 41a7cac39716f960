#include "sim/analysis/compare/run_table.h"

#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int kMostCount = 1 << 20;

// Every column once, in order, for both directions.
template <class Io, class Row>
void Visit(Io& io, Row& row) {
  io.Text("schedule", row.schedule);
  io.Count("pp", row.pp);
  io.Count("vpp", row.vpp);
  io.Count("microbatches", row.microbatches);
  io.Count("microbatch_size", row.microbatch_size);
  io.Count("sequence", row.sequence);
  io.Count("slices", row.slices);
  io.Text("layers", row.layers);
  io.Count("steps", row.steps);
  io.Text("clock", row.clock);
  io.Time("shortest_pass_s", row.shortest_pass_s);
  io.Time("predicted_s", row.predicted_s);
  io.Time("executed_s", row.executed_s);
  io.Choice("gradients", row.gradients,
            {"bits", "tolerance", "differ", "unchecked"});
  io.Text("peak_activations", row.peak_activations);
  io.Time("wall_s", row.wall_s);
  io.Text("date", row.date);
  io.Text("device", row.device);
  io.Text("libraries", row.libraries);
  io.Text("version", row.version);
  io.Text("profile", row.profile);
  io.Text("options", row.options);
}

class Names {
 public:
  std::vector<std::string> all;
  void Text(const char* name, const std::string&) { all.push_back(name); }
  void Count(const char* name, int) { all.push_back(name); }
  void Time(const char* name, double) { all.push_back(name); }
  void Choice(const char* name, const std::string&,
              const std::set<std::string>&) {
    all.push_back(name);
  }
};

std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

class Cells {
 public:
  std::vector<std::string> all;
  void Text(const char*, const std::string& value) {
    all.push_back(Quoted(value));
  }
  void Count(const char*, int value) { all.push_back(absl::StrCat(value)); }
  void Time(const char*, double value) {
    all.push_back(absl::StrFormat("%.9g", value));
  }
  void Choice(const char*, const std::string& value,
              const std::set<std::string>&) {
    all.push_back(value);
  }
};

class Reader {
 public:
  Reader(std::vector<std::string> cells, std::string place)
      : cells_(std::move(cells)), place_(std::move(place)) {}

  const absl::Status& status() const { return status_; }
  void Text(const char*, std::string& value) { value = Next(); }
  void Count(const char* name, int& value) {
    const std::string cell = Next();
    if (!absl::SimpleAtoi(cell, &value) || value < 1 || value > kMostCount) {
      Fail(name, cell, absl::StrCat("1 to ", kMostCount));
    }
  }
  void Time(const char* name, double& value) {
    const std::string cell = Next();
    if (!absl::SimpleAtod(cell, &value) || !std::isfinite(value) ||
        value <= 0) {
      Fail(name, cell, "seconds above 0");
    }
  }
  void Choice(const char* name, std::string& value,
              const std::set<std::string>& allowed) {
    value = Next();
    if (!allowed.contains(value)) {
      Fail(name, value, absl::StrJoin(allowed, ", "));
    }
  }

 private:
  std::string Next() { return cells_[next_++]; }
  void Fail(absl::string_view name, const std::string& value,
            absl::string_view allowed) {
    status_.Update(BadValue(absl::StrCat(place_, ": ", name), value, allowed));
  }

  const std::vector<std::string> cells_;
  const std::string place_;
  size_t next_ = 0;
  absl::Status status_;
};

// The cells of one line; a quote that does not end goes to the end of the line.
std::vector<std::string> Split(absl::string_view line) {
  std::vector<std::string> cells(1);
  bool quoted = false;
  for (size_t at = 0; at < line.size(); ++at) {
    const char letter = line[at];
    if (letter == '"') {
      if (quoted && at + 1 < line.size() && line[at + 1] == '"') {
        cells.back() += line[++at];
      } else {
        quoted = !quoted;
      }
    } else if (letter == ',' && !quoted) {
      cells.emplace_back();
    } else {
      cells.back() += letter;
    }
  }
  return cells;
}

}  // namespace

bool ExecutedRow::peaks_agree() const {
  return !absl::StrContains(peak_activations, "!=");
}

bool ExecutedRow::gradients_agree() const {
  return gradients == "bits" || gradients == "tolerance";
}

bool ExecutedRow::even() const {
  const std::vector<std::string> counts = absl::StrSplit(layers, ' ');
  return std::set<std::string>(counts.begin(), counts.end()).size() == 1;
}

std::string ExecutedRow::Key() const {
  return absl::StrCat(schedule, " pp ", pp, " vpp ", vpp, " microbatches ",
                      microbatches, " of ", microbatch_size, " x ", sequence,
                      " tokens, slices ", slices, ", layers ", layers, ", ",
                      clock, " clock, options ", options);
}

std::string ExecutedTableHeader() {
  Names names;
  const ExecutedRow row;
  Visit(names, row);
  return absl::StrCat(absl::StrJoin(names.all, ","), "\n");
}

std::string ExecutedTableLine(const ExecutedRow& row) {
  Cells cells;
  Visit(cells, row);
  return absl::StrCat(absl::StrJoin(cells.all, ","), "\n");
}

absl::StatusOr<std::vector<ExecutedRow>> ParseExecutedTable(
    absl::string_view content, absl::string_view source) {
  Names names;
  const ExecutedRow none;
  Visit(names, none);
  std::vector<ExecutedRow> rows;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(content, '\n')) {
    ++number;
    if (line.empty()) continue;
    const std::string place = absl::StrCat(source, ":", number);
    std::vector<std::string> cells = Split(line);
    if (number == 1) {
      if (cells == names.all) continue;
      return BadValue(place, std::string(line.substr(0, 60)),
                      absl::StrCat("the columns of execute --row: ",
                                   absl::StrJoin(names.all, ",")));
    }
    if (cells.size() != names.all.size()) {
      return BadValue(place, absl::StrCat(cells.size(), " cells"),
                      absl::StrCat(names.all.size()));
    }
    Reader reader(std::move(cells), place);
    ExecutedRow row;
    Visit(reader, row);
    PW_RETURN_IF_ERROR(reader.status());
    rows.push_back(std::move(row));
  }
  if (number <= 1 && content.empty()) {
    return BadValue(std::string(source), "an empty file",
                    "a table that execute --row has written");
  }
  return rows;
}

}  // namespace pipewright
