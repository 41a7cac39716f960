// The files of experiments/papers/llama3_table4: MFU by the analytic cost
// model, which has no stragglers and no faults of a network; shown, not
// judged.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/model/model.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"
#include "sim/run/simulated_run.h"

namespace pipewright::llama3_table4 {
namespace {

// Points of MFU within which a row would count as hit.
constexpr double kPoints = 5;

absl::StatusOr<RunConfig> ConfigOf(const TableRow& row,
                                   const std::string& engine) {
  RunConfig config;
  config.engine = engine;
  config.model.preset = row.Text("model");
  config.system.preset = "dgx-h100";
  config.costs.analytic = true;
  config.schedule.name = "interleaved-1f1b";
  StrategyChoice& strategy = config.strategy;
  strategy.pp = row.Integer("pp");
  strategy.vpp = row.Integer("vpp");
  strategy.tp = row.Integer("tp");
  strategy.dp = row.Integer("dp");
  strategy.microbatches = row.Integer("batch_of_replica");
  strategy.data_parallel = DataParallel::kZero1;
  // Section 3.3.2: one layer less on the first and on the last stage.
  PW_ASSIGN_OR_RETURN(const ModelSpec model, FindModel(row.Text("model")));
  strategy.layers.assign(*strategy.pp * *strategy.vpp, 1);
  strategy.layers.front() = strategy.layers.back() = 0;
  PW_RETURN_IF_ERROR(model.layers + 2 ==
                             static_cast<int64_t>(strategy.layers.size())
                         ? absl::OkStatus()
                         : absl::InternalError("llama3-table4: layers"));
  return config;
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine) {
  std::vector<Comparison> comparisons;
  RunContext context;
  for (const TableRow& row : ReadTable("llama3_table4/table4")) {
    PW_ASSIGN_OR_RETURN(const RunConfig config, ConfigOf(row, engine));
    PW_ASSIGN_OR_RETURN(const SimulatedRun run, Simulate(config, &context));
    Comparison comparison;
    comparison.setting =
        absl::StrCat(row.Text("model"), ", ", row.Text("gpus"), " GPUs");
    comparison.schedule = "MFU, per cent";
    comparison.published = row.Text("mfu_percent");
    comparison.simulated = 100 * *run.report.throughput->mfu();
    comparison.rounded = absl::StrFormat("%.1f", comparison.simulated);
    comparison.rule = Comparison::Rule::kShown;
    comparison.tolerance = kPoints;
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

const RegisterPaper kRow({
    .name = "llama3-table4",
    .summary = "The Llama 3 Herd of Models, arXiv 2407.21783, table 4",
    .metric = "MFU on H100 by the analytic cost model",
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright::llama3_table4
