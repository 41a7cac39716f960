// The files of experiments/papers/zero_bubble_table5, run through the same
// path as `simulate`.
#include <map>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/cli/reproduce.h"
#include "sim/config/prepare.h"
#include "sim/engine/engine.h"
#include "sim/report/report.h"

namespace pipewright {

// Embedded by CMakeLists.txt: (file name without ending, content).
const std::vector<std::pair<std::string, std::string>>&
EmbeddedZeroBubbleTable5();

namespace {

using CsvRow = std::map<std::string, std::string>;

// Of a file of ours: '#' lines, a line of names, then values.
std::vector<CsvRow> ReadTable(absl::string_view name) {
  std::vector<CsvRow> rows;
  std::vector<std::string> columns;
  for (const auto& [file, content] : EmbeddedZeroBubbleTable5()) {
    if (file != name) continue;
    for (const absl::string_view line :
         absl::StrSplit(content, '\n', absl::SkipEmpty())) {
      if (line[0] == '#') continue;
      const std::vector<std::string> cells = absl::StrSplit(line, ',');
      if (columns.empty()) {
        columns = cells;
        continue;
      }
      PW_CHECK(cells.size() == columns.size());
      CsvRow row;
      for (size_t column = 0; column < cells.size(); ++column) {
        row[columns[column]] = cells[column];
      }
      rows.push_back(std::move(row));
    }
  }
  PW_CHECK(!rows.empty());
  return rows;
}

int Integer(const CsvRow& row, const std::string& column) {
  int value = 0;
  PW_CHECK(absl::SimpleAtoi(row.at(column), &value));
  return value;
}

double Seconds(const CsvRow& row, const std::string& column) {
  double milliseconds = 0;
  PW_CHECK(absl::SimpleAtod(row.at(column), &milliseconds));
  return milliseconds * 1e-3;
}

absl::StatusOr<Report> Simulate(const CsvRow& times,
                                const std::string& schedule, int vpp,
                                const std::string& engine_name) {
  RunConfig config;
  config.schedule.name = schedule;
  config.engine = engine_name;
  config.iterations = 1;
  config.strategy.pp = Integer(times, "pp");
  config.strategy.vpp = vpp;
  config.strategy.microbatches = Integer(times, "microbatches");
  config.costs.forward_s = Seconds(times, "forward_ms");
  config.costs.backward_input_s = Seconds(times, "backward_input_ms");
  config.costs.backward_weight_s = Seconds(times, "backward_weight_ms");
  config.costs.p2p_s = Seconds(times, "p2p_ms");
  PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(config));
  PW_ASSIGN_OR_RETURN(const Program program, Lower(run.schedule, run.lower));
  PW_ASSIGN_OR_RETURN(const EngineInfo* engine, FindEngine(run.engine));
  PW_ASSIGN_OR_RETURN(const RunSummary summary,
                      engine->run(program, EngineOptions()));
  return Summarize(program, summary,
                   std::vector<double>(program.ranks.size(), 0));
}

// `off_s`: taken off the cost before the rate is formed.
double Rate(const Report& report, double off_s) {
  const double cost_s = report.span_s.per_rank - off_s;
  return (cost_s - report.busy_s) / cost_s;
}

Comparison Compare(const std::string& setting, const std::string& schedule,
                   const std::string& published, double rate) {
  return {setting, schedule, published, rate, absl::StrFormat("%.4f", rate)};
}

}  // namespace

absl::StatusOr<std::vector<Comparison>> ReproduceZeroBubbleTable5(
    const std::string& engine) {
  const std::vector<CsvRow> times = ReadTable("times");
  const std::vector<CsvRow> published = ReadTable("published");
  PW_CHECK(times.size() == published.size());
  std::vector<Comparison> comparisons;
  for (size_t row = 0; row < times.size(); ++row) {
    for (const char* key : {"model", "pp", "microbatches"}) {
      PW_CHECK(times[row].at(key) == published[row].at(key));
    }
    const std::string setting =
        absl::StrCat(times[row].at("model"), ", pp ", times[row].at("pp"),
                     ", microbatches ", times[row].at("microbatches"));
    for (const char* schedule : {"1f1b", "zb-h1", "zb-h2"}) {
      PW_ASSIGN_OR_RETURN(const Report report,
                          Simulate(times[row], schedule, 1, engine));
      comparisons.push_back(Compare(
          setting, schedule, published[row].at(schedule), Rate(report, 0)));
    }
    PW_ASSIGN_OR_RETURN(const Report interleaved,
                        Simulate(times[row], "interleaved-1f1b",
                                 Integer(times[row], "vpp"), engine));
    const double hops_s =
        Integer(times[row], "pp") * Seconds(times[row], "p2p_ms");
    comparisons.push_back(Compare(setting, "interleaved-1f1b",
                                  published[row].at("interleaved"),
                                  Rate(interleaved, hops_s)));
    comparisons.push_back(Compare(setting, "interleaved-1f1b, plain span",
                                  published[row].at("interleaved_plain"),
                                  Rate(interleaved, 0)));
    comparisons.back().in_paper = false;
  }
  return comparisons;
}

}  // namespace pipewright
