// The files of experiments/papers/zero_bubble_table5, run through the same
// path as `simulate`.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/engine/engine.h"
#include "sim/report/report.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"

namespace pipewright {

namespace {

absl::StatusOr<Report> Simulate(const TableRow& times,
                                const std::string& schedule, int vpp,
                                const std::string& engine_name) {
  RunConfig config;
  config.schedule.name = schedule;
  config.engine = engine_name;
  config.iterations = 1;
  config.strategy.pp = times.Integer("pp");
  config.strategy.vpp = vpp;
  config.strategy.microbatches = times.Integer("microbatches");
  config.costs.forward_s = 1e-3 * times.Number("forward_ms");
  config.costs.backward_input_s = 1e-3 * times.Number("backward_input_ms");
  config.costs.backward_weight_s = 1e-3 * times.Number("backward_weight_ms");
  config.costs.p2p_s = 1e-3 * times.Number("p2p_ms");
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

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine) {
  const std::vector<TableRow> times = ReadTable("zero_bubble_table5/times");
  const std::vector<TableRow> published =
      ReadTable("zero_bubble_table5/published");
  PW_CHECK(times.size() == published.size());
  std::vector<Comparison> comparisons;
  for (size_t row = 0; row < times.size(); ++row) {
    for (const char* key : {"model", "pp", "microbatches"}) {
      PW_CHECK(times[row].Text(key) == published[row].Text(key));
    }
    const std::string setting =
        absl::StrCat(times[row].Text("model"), ", pp ", times[row].Text("pp"),
                     ", microbatches ", times[row].Text("microbatches"));
    for (const char* schedule : {"1f1b", "zb-h1", "zb-h2"}) {
      PW_ASSIGN_OR_RETURN(const Report report,
                          Simulate(times[row], schedule, 1, engine));
      comparisons.push_back(Compare(
          setting, schedule, published[row].Text(schedule), Rate(report, 0)));
    }
    PW_ASSIGN_OR_RETURN(const Report interleaved,
                        Simulate(times[row], "interleaved-1f1b",
                                 times[row].Integer("vpp"), engine));
    const double hops_s =
        times[row].Integer("pp") * 1e-3 * times[row].Number("p2p_ms");
    comparisons.push_back(Compare(setting, "interleaved-1f1b",
                                  published[row].Text("interleaved"),
                                  Rate(interleaved, hops_s)));
    comparisons.push_back(Compare(setting, "interleaved-1f1b, plain span",
                                  published[row].Text("interleaved_plain"),
                                  Rate(interleaved, 0)));
    comparisons.back().in_paper = false;
  }
  return comparisons;
}

const RegisterPaper kRow({
    .name = "zero-bubble-table5",
    .summary = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, table 5",
    .metric = "bubble rate: (longest span of a rank - its work) / span",
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright
