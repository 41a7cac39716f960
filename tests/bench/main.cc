// Runs benchmarks, as Google Benchmark's own main does; with --page=FILE those
// of the table in docs/dev/benchmarks.md alone, of which it says whether they are
// still what the table says.
//
//   pipewright_bench --page=docs/dev/benchmarks.md [--write | --planted]
//
// Rows are "| `NAME` | what | CPU ms | ratio | MB | count |" with the counters
// of Headline. It fails if a ratio is above kMostRatio times that of its row,
// in the best of three, or bytes or a count above kMostWork times, or if one is
// as far below. --write puts what it measures into the rows. --planted makes
// every run ten times as long and fails unless all three of each row are
// noticed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "sim/base/file.h"

namespace {

// Other work on the machine and other processors move ratios; bytes and counts
// are those of the program alone.
constexpr double kMostRatio = 3;
constexpr double kMostWork = 1.1;

// The page has one line that begins so.
constexpr char kMeasured[] = "Measured by this on ";

struct Values {
  double cpu_ms = 0;
  double ratio = 0;
  double megabytes = 0;
  double count = 0;
};

struct Row {
  size_t line = 0;
  std::string name;
  std::string what;
  Values known;
};

std::optional<Row> RowOf(const std::string& text) {
  if (!absl::StartsWith(text, "| `")) return std::nullopt;
  std::vector<std::string> cells = absl::StrSplit(text, '|');
  if (cells.size() != 8) return std::nullopt;
  for (std::string& cell : cells) {
    cell = std::string(absl::StripAsciiWhitespace(cell));
  }
  Row row = {.name = cells[1].substr(1, cells[1].size() - 2), .what = cells[2]};
  double* const values[] = {&row.known.cpu_ms, &row.known.ratio,
                            &row.known.megabytes, &row.known.count};
  for (int index = 0; index < 4; ++index) {
    if (!absl::SimpleAtod(cells[3 + index], values[index]) ||
        *values[index] <= 0) {
      std::cerr << row.name << ": \"" << cells[3 + index]
                << "\" is no number above 0\n";
      std::exit(2);
    }
  }
  return row;
}

std::string TextOf(const Row& row, const Values& now) {
  return absl::StrFormat("| `%s` | %s | %.3g | %.3g | %.4g | %.6g |", row.name,
                         row.what, now.cpu_ms, now.ratio, now.megabytes,
                         now.count);
}

class Reporter : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const auto at = [&](const char* name) {
        const auto found = run.counters.find(name);
        return found == run.counters.end() ? 0 : found->second.value;
      };
      values[run.benchmark_name()] = {at("cpu_ms"), at("ratio"),
                                      1e-6 * at("bytes"), at("count")};
    }
  }
  std::map<std::string, Values> values;
};

// Values of these rows, [name].
std::map<std::string, Values> Measure(const std::vector<Row>& rows) {
  std::vector<std::string> names;
  for (const Row& row : rows) names.push_back(row.name);
  Reporter reporter;
  benchmark::RunSpecifiedBenchmarks(
      &reporter, absl::StrCat("^(", absl::StrJoin(names, "|"), ")$"));
  for (const std::string& name : names) {
    if (reporter.values[name].ratio > 0) continue;
    std::cerr << name << ": no such benchmark, or it has failed\n";
    std::exit(1);
  }
  return reporter.values;
}

// How many times what the row knows.
struct Times {
  double ratio = 0;
  double megabytes = 0;
  double count = 0;
};
Times TimesOf(const Row& row, const Values& now) {
  return {now.ratio / row.known.ratio, now.megabytes / row.known.megabytes,
          now.count / row.known.count};
}

int Check(const std::vector<Row>& rows, bool planted) {
  std::map<std::string, Values> now = Measure(rows);
  int failed = 0;
  for (const Row& row : rows) {
    Times times = TimesOf(row, now[row.name]);
    for (int again = 0; again < 2 && !planted && times.ratio > kMostRatio;
         ++again) {
      times.ratio =
          std::min(times.ratio, TimesOf(row, Measure({row})[row.name]).ratio);
    }
    const bool all = times.ratio > kMostRatio && times.megabytes > kMostWork &&
                     times.count > kMostWork;
    const bool any = times.ratio > kMostRatio || times.megabytes > kMostWork ||
                     times.count > kMostWork;
    // What a row that is too high would let pass.
    const bool stale = times.ratio < 1 / kMostRatio ||
                       times.megabytes < 1 / kMostWork ||
                       times.count < 1 / kMostWork;
    const bool wrong = planted ? !all : any || stale;
    failed += wrong ? 1 : 0;
    std::cout << absl::StrFormat(
        "%-6s %-46s ratio x %.2f  bytes x %.3f  count x %.3f%s\n",
        wrong ? "FAILED" : "ok", row.name, times.ratio, times.megabytes,
        times.count, stale && !planted ? "  (less than its row: --write)" : "");
  }
  std::cout << absl::StrFormat("%d of %d %s\n", failed, rows.size(),
                               planted ? "were not noticed" : "failed");
  return failed == 0 ? 0 : 1;
}

std::string Processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) {
      return line.substr(line.find(": ") + 2);
    }
  }
  return "unknown";
}

int Write(const std::string& page, std::vector<std::string> lines,
          const std::vector<Row>& rows) {
  std::map<std::string, Values> now = Measure(rows);
  for (const Row& row : rows) {
    lines[row.line] = TextOf(row, now.at(row.name));
  }
  const Values first = now.at(rows[0].name);
  std::string& where =
      *std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
        return absl::StartsWith(line, kMeasured);
      });
  where = absl::StrCat(
      kMeasured, absl::FormatTime("%Y-%m-%d", absl::Now(), absl::UTCTimeZone()),
      " on ", std::thread::hardware_concurrency(), " processors, ", Processor(),
      ", where the loop by hand takes ",
      absl::StrFormat("%.2g", first.cpu_ms / first.ratio), " ms.");
  const absl::Status written =
      pipewright::WriteFile(page, absl::StrJoin(lines, "\n"));
  if (!written.ok()) std::cerr << written.message() << "\n";
  return written.ok() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::string page;
  bool planted = false;
  bool write = false;
  int left = 1;
  for (int index = 1; index < argc; ++index) {
    absl::string_view argument = argv[index];
    if (absl::ConsumePrefix(&argument, "--page=")) {
      page = std::string(argument);
    } else if (argument == "--planted" || argument == "--write") {
      (argument == "--write" ? write : planted) = true;
    } else {
      argv[left++] = argv[index];
    }
  }
  argc = left;
  if (planted) setenv("PIPEWRIGHT_PLANTED", "10", 1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  if (page.empty()) {
    benchmark::RunSpecifiedBenchmarks();
    return 0;
  }
  const absl::StatusOr<std::string> text = pipewright::ReadFile(page);
  if (!text.ok()) {
    std::cerr << text.status().message() << "\n";
    return 2;
  }
  const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  std::vector<Row> rows;
  for (size_t line = 0; line < lines.size(); ++line) {
    if (std::optional<Row> row = RowOf(lines[line])) {
      row->line = line;
      rows.push_back(*std::move(row));
    }
  }
  if (rows.empty()) {
    std::cerr << page << ": no rows of benchmarks\n";
    return 2;
  }
  return write ? Write(page, lines, rows) : Check(rows, planted);
}
