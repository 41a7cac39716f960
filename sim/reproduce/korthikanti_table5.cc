// The files of experiments/papers/korthikanti_table5, step times by the
// analytic cost model.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"
#include "sim/run/simulated_run.h"

namespace pipewright::korthikanti_table5 {
namespace {

constexpr double kTolerance = 0.10;

RunConfig ConfigOf(const TableRow& row, bool present_work,
                   const std::string& engine) {
  RunConfig config;
  config.engine = engine;
  config.model.preset = row.Text("model");
  config.system.preset = "dgx-a100";
  config.costs.analytic = true;
  StrategyChoice& strategy = config.strategy;
  strategy.pp = row.Integer("pp");
  strategy.vpp = row.Integer("vpp");
  strategy.tp = row.Integer("tp");
  strategy.microbatch_size = row.Integer("microbatch_size");
  strategy.microbatches = row.Integer("batch") / row.Integer("microbatch_size");
  strategy.sequence_parallel = present_work;
  strategy.recompute = present_work ? Recompute::kSelective : Recompute::kFull;
  strategy.attention = Attention::kUnfused;
  const bool interleaved = *strategy.vpp > 1;
  config.schedule.name = interleaved ? "interleaved-1f1b" : "1f1b";
  if (!interleaved) strategy.waiting = WaitRule::kBatched;
  return config;
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine) {
  std::vector<Comparison> comparisons;
  RunContext context;
  for (const TableRow& row : ReadTable("korthikanti_table5/table5")) {
    for (const bool present_work : {false, true}) {
      PW_ASSIGN_OR_RETURN(
          const SimulatedRun run,
          Simulate(ConfigOf(row, present_work, engine), &context));
      Comparison comparison;
      comparison.setting = absl::StrCat(
          row.Text("model"), ", pp ", row.Text("pp"), " vpp ", row.Text("vpp"));
      comparison.schedule =
          present_work ? "sequence par. + selective" : "full recomputation";
      comparison.published =
          row.Text(present_work ? "present_work_s" : "full_recompute_s");
      comparison.simulated = run.report.iteration_s;
      comparison.rounded = absl::StrFormat("%.2f", run.report.iteration_s);
      comparison.rule = Comparison::Rule::kWithin;
      comparison.tolerance = kTolerance;
      comparisons.push_back(std::move(comparison));
    }
  }
  return comparisons;
}

const RegisterPaper kRow({
    .name = "korthikanti-table5",
    .summary = "Reducing Activation Recomputation in Large Transformer "
               "Models, arXiv 2205.05198, table 5",
    .metric = "seconds of a step on A100 by the analytic cost model",
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright::korthikanti_table5
