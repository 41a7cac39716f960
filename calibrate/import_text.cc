#include "calibrate/import_text.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/trace/log_lines.h"

namespace pipewright {
namespace {

using Words = std::vector<std::string>;

Words SplitWords(absl::string_view text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
}

bool IsCount(absl::string_view word) {
  int64_t number = 0;
  return absl::SimpleAtoi(word, &number);
}

// A time or a count as a number; "N/A" stays.
Json Cell(const std::string& word) {
  int64_t count = 0;
  if (absl::SimpleAtoi(word, &count)) return count;
  double number = 0;
  if (absl::SimpleAtod(word, &number) && std::isfinite(number)) return number;
  return word;
}

absl::Status UnfitLine(const std::string& source, int64_t line,
                       absl::string_view what, absl::string_view allowed) {
  return InFile(source, line,
                WithValue(absl::InvalidArgumentError(
                              absl::StrCat(what, "; allowed: ", allowed)),
                          what, allowed));
}

// "all_reduce" of "./build/all_reduce_perf_mpi -b 8"; "" without one.
std::string TestIn(absl::string_view text) {
  const size_t end = text.find("_perf");
  if (end == absl::string_view::npos) return "";
  size_t begin = end;
  while (begin > 0 &&
         (absl::ascii_islower(text[begin - 1]) || text[begin - 1] == '_')) {
    --begin;
  }
  return std::string(text.substr(begin, end - begin));
}

int64_t BytesOfType(absl::string_view type) {
  if (absl::StartsWith(type, "f8")) return 1;
  for (const auto& [name, bytes] : {std::pair("int8", 1),
                                    {"uint8", 1},
                                    {"half", 2},
                                    {"bfloat16", 2},
                                    {"int32", 4},
                                    {"uint32", 4},
                                    {"float", 4},
                                    {"int64", 8},
                                    {"uint64", 8},
                                    {"double", 8}}) {
    if (type == name) return bytes;
  }
  return 0;
}

// One run of one program, as its lines come.
class NcclRun {
 public:
  NcclRun(std::string writer, std::string source)
      : writer_(std::move(writer)), source_(std::move(source)) {}

  const std::string& writer() const { return writer_; }
  bool has_rows() const { return !lines_.empty(); }
  bool ended() const { return !bounds_.is_null(); }

  absl::Status Take(const LogLine& line) {
    Words words = SplitWords(line.text);
    const bool remark = !words.empty() && words[0] == "#";
    if (remark) words.erase(words.begin());
    if (words.empty()) return absl::OkStatus();
    if (remark && words[0] == "Rank") return TakeRank(words, line);
    if (words[0] == "nThread") TakeIterations(words);
    if (remark && (absl::StrContains(line.text, "out-of-place") ||
                   absl::StrContains(line.text, "in-place"))) {
      in_place_first_ =
          line.text.find("in-place") < line.text.find("out-of-place");
      one_kind_ = !absl::StrContains(line.text, "out-of-place");
    }
    if (words[0] == "size" || words[0] == "#size") {
      columns_ = words;
      columns_[0] = "size";
      header_ = line.number;
      return absl::OkStatus();
    }
    if (absl::StrContains(line.text, "Test NCCL failure") ||
        absl::StrContains(line.text, "Test CUDA failure")) {
      warnings_.push_back(absl::StrCat("line ", line.number, ": ",
                                       absl::StripAsciiWhitespace(line.text)));
    }
    if (absl::StrContains(line.text, "Out of bounds values")) {
      double count = 0;
      if (!NumberBehind(line.text, ":", &count)) count = 1;
      bounds_ = {{"count", count},
                 {"okay", absl::EndsWith(line.text, "OK") ? "true" : "false"}};
    }
    constexpr absl::string_view kLibrary = "-library=";
    double version = 0;
    if (NumberBehind(line.text, kLibrary, &version)) version_ = version;
    const std::string test = TestIn(line.text);
    if (!test.empty() && name_.empty()) name_ = test;
    if (remark || !IsCount(words[0])) return absl::OkStatus();
    if (header_ > 0) return TakeRow(words, line.number);
    if (words.size() < 3 || BytesOfType(words[2]) == 0) {
      return absl::OkStatus();
    }
    return UnfitLine(source_, line.number, "a row without a header above it",
                     "rows below a line \"#  size  count  type ...\"");
  }

  absl::StatusOr<BenchmarkText> Finish() {
    if (device_names_.empty()) {
      return UnfitLine(source_, header_, "no line lists the ranks above it",
                       "a table below its lines \"#  Rank  0 ...\"");
    }
    PW_RETURN_IF_ERROR(NameTest());
    if (bounds_.is_null()) {
      warnings_.push_back(
          absl::StrCat("the table that begins in line ", header_,
                       " ends without \"Out of bounds values\": the run or the "
                       "file may have been cut off"));
    }
    Json json = {
        {"args", Json::array({absl::StrCat(name_, "_perf")})},
        {"config", {{"devices", devices_}, {"iterations", iterations_}}},
        {"results", rows_}};
    if (!bounds_.is_null()) json["out_of_bounds"] = bounds_;
    if (version_ > 0) json["nccl_version"] = version_;
    BenchmarkText out;
    out.json = json.dump();
    out.lines = lines_;
    out.warnings = warnings_;
    return out;
  }

 private:
  // "Rank 0 Group 0 Pid 12 on HOST device 0 [0x0f] NAME".
  absl::Status TakeRank(const Words& words, const LogLine& line) {
    const auto host = std::find(words.begin(), words.end(), "on");
    const size_t name = line.text.find("] ");
    int64_t rank = 0;
    if (words.size() < 2 || !absl::SimpleAtoi(words[1], &rank) ||
        words.end() - host < 2 || name == std::string::npos) {
      return UnfitLine(source_, line.number,
                       absl::StripAsciiWhitespace(line.text),
                       "\"#  Rank N ... on HOST device N [BUS] NAME\"");
    }
    if (rank != static_cast<int64_t>(device_names_.size())) {
      return UnfitLine(
          source_, line.number, absl::StrCat("rank ", rank),
          absl::StrCat("rank ", device_names_.size(),
                       ": the ranks of one run in their order (processes that "
                       "ran without MPI, and whose lines are mixed, cannot be "
                       "told apart)"));
    }
    device_names_.push_back(line.text.substr(name + 2));
    devices_.push_back(
        {{"hostname", host[1]},
         {"device_info", absl::StripAsciiWhitespace(device_names_.back())}});
    return absl::OkStatus();
  }

  void TakeIterations(const Words& words) {
    for (size_t at = 1; at + 1 < words.size(); ++at) {
      if (words[at] == "iters:" && words[at - 1] != "warmup" &&
          words[at - 1] != "agg") {
        iterations_ = Cell(words[at + 1]);
      }
    }
  }

  absl::Status TakeRow(const Words& words, int64_t number) {
    // -M prints two words of a time behind each row, under one of the header.
    const bool timestamp = columns_.back() == "timestamp";
    if (words.size() != columns_.size() + (timestamp ? 1 : 0)) {
      return UnfitLine(
          source_, number, absl::StrCat(words.size(), " columns"),
          absl::StrCat("the ", columns_.size(), " of the header in line ",
                       header_, ": ", absl::StrJoin(columns_, " ")));
    }
    Json row;
    int times = 0;
    for (size_t at = 0; at < columns_.size(); ++at) {
      const std::string& column = columns_[at];
      if (column == "time" || column == "cputime") ++times;
      const bool first = times == 1;
      const char* const place =
          one_kind_ || first == in_place_first_ ? "in_place" : "out_of_place";
      if (times == 0) {
        const bool counts = column == "size" || column == "count";
        row[column] = counts ? Cell(words[at]) : Json(words[at]);
      } else if (column == "time") {
        row[place]["time"] = Cell(words[at]);
      } else if (column == "#wrong") {
        row[place]["nwrong"] = Cell(words[at]);
      }
    }
    rows_.push_back(std::move(row));
    lines_.push_back(number);
    return absl::OkStatus();
  }

  // The count is that of the smaller buffer: as many elements as the size has
  // in an all-reduce, a share of a rank in a reduce-scatter.
  absl::Status NameTest() {
    if (name_.empty()) {
      name_ = TestIn(source_.substr(source_.rfind('/') + 1));
    }
    if (!name_.empty()) return absl::OkStatus();
    bool all_reduce = true;
    bool reduce_scatter = true;
    for (const Json& row : rows_) {
      const auto word = [&](const char* column) {
        const Json* const cell = row.find(column);
        return cell != nullptr && cell->is_string() ? cell->text() : "";
      };
      const auto number = [&](const char* column) {
        const Json* const cell = row.find(column);
        return cell != nullptr && cell->is_number() ? cell->get<double>() : 0;
      };
      const bool reduces = word("redop") != "none" && word("root") == "-1";
      const double own =
          number("count") * static_cast<double>(BytesOfType(word("type")));
      if (!reduces || own <= 0 || own != number("size")) all_reduce = false;
      if (!reduces || own <= 0 ||
          own * static_cast<double>(devices_.size()) != number("size")) {
        reduce_scatter = false;
      }
    }
    if (all_reduce == reduce_scatter) {
      return UnfitLine(source_, header_, "nothing names the test of this table",
                       "a line with the command or the test, or a file name "
                       "with it, such as all_gather_perf.txt");
    }
    name_ = all_reduce ? "all_reduce" : "reduce_scatter";
    warnings_.push_back(absl::StrCat("nothing names the test; taken as ", name_,
                                     " by its columns"));
    return absl::OkStatus();
  }

  const std::string writer_;
  const std::string source_;
  std::string name_;  // of the test
  Json iterations_ = 1;
  double version_ = 0;
  std::vector<std::string> device_names_;
  Json devices_ = Json::array();
  Words columns_;
  int64_t header_ = 0;
  bool in_place_first_ = false;
  bool one_kind_ = false;  // in place alone
  Json rows_ = Json::array();
  std::vector<int64_t> lines_;
  Json bounds_;
  std::vector<std::string> warnings_;
};

}  // namespace

absl::StatusOr<std::vector<BenchmarkText>> ReadNcclTestsText(
    absl::string_view text, const std::string& source_name) {
  std::deque<NcclRun> runs;  // the last of each writer is its open one
  for (const LogLine& line : LogLines(text)) {
    const auto open = std::find_if(
        runs.rbegin(), runs.rend(),
        [&](const NcclRun& run) { return run.writer() == line.writer; });
    NcclRun* run = open == runs.rend() ? nullptr : &*open;
    const bool begins = absl::StrContains(line.text, " nThread ") ||
                        absl::StrContains(line.text, "Collective test start") ||
                        absl::StrContains(line.text, "-tests version") ||
                        (run != nullptr && run->ended() &&
                         !absl::StrContains(line.text, "concluded") &&
                         !TestIn(line.text).empty());
    if (run == nullptr || (begins && run->has_rows())) {
      run = &runs.emplace_back(line.writer, source_name);
    }
    PW_RETURN_IF_ERROR(run->Take(line));
  }
  std::vector<BenchmarkText> out;
  for (NcclRun& run : runs) {
    if (!run.has_rows()) continue;
    PW_ASSIGN_OR_RETURN(BenchmarkText each, run.Finish());
    out.push_back(std::move(each));
  }
  if (out.empty()) {
    return UnfitLine(source_name, 0, "holds no table of nccl-tests",
                     "what nccl-tests print, or their file of -J");
  }
  return out;
}

absl::StatusOr<BenchmarkText> ReadNvbandwidthText(
    absl::string_view text, const std::string& source_name) {
  constexpr absl::string_view kStates[] = {"Waived", "Error", "Failed",
                                           "Not Found", "Passed"};
  BenchmarkText out;
  Json root = Json::object();
  Json tests = Json::array();
  size_t columns = 0;  // of the matrix that is open
  bool titled = false;
  bool summed = true;
  for (const LogLine& line : LogLines(text)) {
    absl::string_view rest = absl::StripAsciiWhitespace(line.text);
    const Words words = SplitWords(rest);
    if (absl::ConsumePrefix(&rest, "Running ")) {
      absl::ConsumePrefix(&rest, "benchmark ");
      absl::ConsumeSuffix(&rest, ".");
      tests.push_back({{"name", std::string(rest)}, {"status", "Running"}});
      out.lines.push_back(line.number);
      columns = 0;
      titled = false;
      continue;
    }
    if (absl::ConsumePrefix(&rest, "Driver Version: ")) {
      root["Driver Version"] = std::string(rest);
    }
    if (words.size() > 2 && words[0] == "Device" && words[1] == "0:") {
      rest = rest.substr(rest.find(": ") + 2);
      root["device"] = std::string(rest.substr(0, rest.rfind(" (")));
    }
    const auto* const state = std::find_if(
        std::begin(kStates), std::end(kStates), [&](absl::string_view each) {
          return absl::StartsWithIgnoreCase(rest, absl::StrCat(each, ":"));
        });
    if (state != std::end(kStates)) {
      if (tests.empty() || tests.back()["status"] != "Running") {
        out.warnings.push_back(absl::StrCat("line ", line.number, ": ", rest,
                                            ", of a test without a name"));
      } else {
        tests.back()["status"] = std::string(*state);
      }
      columns = 0;
      titled = false;
      continue;
    }
    if (tests.empty()) continue;
    if (!words.empty() && words[0] == "SUM") summed = true;
    if (absl::StrContains(rest, "(GB/s)")) {
      titled = true;
      columns = 0;
      continue;
    }
    if (!titled || words.empty() || !IsCount(words[0])) {
      titled = titled && words.empty() && columns == 0;
      continue;
    }
    if (columns == 0) {
      columns = words.size();
      continue;
    }
    if (words.size() != columns + 1) {
      return UnfitLine(
          source_name, line.number,
          absl::StrCat(words.size() - 1, " bandwidths"),
          absl::StrCat("one for each of the ", columns, " columns of ",
                       tests.back()["name"].get<std::string>()));
    }
    tests.back()["bandwidth_matrix"].push_back(
        Words(words.begin() + 1, words.end()));
    tests.back()["status"] = "Passed";
    summed = false;
  }
  if (tests.empty()) {
    return UnfitLine(source_name, 0, "holds no test of nvbandwidth",
                     "what nvbandwidth prints, as text or with -j");
  }
  if (!summed) {
    out.warnings.push_back(absl::StrCat(
        tests.back()["name"].get<std::string>(),
        " ends without its SUM: the run or the file may have been cut off"));
  }
  root["testcases"] = std::move(tests);
  out.json = Json({{"nvbandwidth", std::move(root)}}).dump();
  return out;
}

}  // namespace pipewright
