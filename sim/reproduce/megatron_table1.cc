// The files of experiments/papers/megatron_table1, step times by the analytic
// cost model.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"
#include "sim/run/simulated_run.h"

namespace pipewright::megatron_table1 {
namespace {

constexpr double kTolerance = 0.10;
// Of all runs, by the run scripts' --fp16 and --DDP-impl local: gradients are
// fp16 and are reduced behind the whole backward.
constexpr int kGradientBytes = 2;

RunConfig ConfigOf(const TableRow& row, const std::string& engine) {
  RunConfig config;
  config.engine = engine;
  config.model.preset = row.Text("model");
  config.system.preset = "dgx-a100";
  config.costs.analytic = true;
  StrategyChoice& strategy = config.strategy;
  strategy.pp = row.Integer("pp");
  strategy.vpp = row.Integer("vpp");
  strategy.tp = row.Integer("tp");
  strategy.dp = row.Integer("gpus") / (*strategy.pp * *strategy.tp);
  strategy.microbatch_size = row.Integer("microbatch_size");
  strategy.microbatches =
      row.Integer("batch") / (*strategy.dp * *strategy.microbatch_size);
  strategy.sequence_parallel = false;
  strategy.recompute = Recompute::kFull;
  strategy.attention = Attention::kUnfused;
  strategy.gradient_bytes_per_parameter = kGradientBytes;
  strategy.overlap_gradients = false;
  const bool interleaved = *strategy.vpp > 1;
  config.schedule.name = interleaved ? "interleaved-1f1b" : "1f1b";
  // The interleaved schedule posts the transfers of a forward and a backward
  // together, which no waiting rule describes.
  if (!interleaved) strategy.waiting = WaitRule::kBatched;
  return config;
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine) {
  std::vector<Comparison> comparisons;
  RunContext context;
  for (const TableRow& row : ReadTable("megatron_table1/table1")) {
    PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                        Simulate(ConfigOf(row, engine), &context));
    Comparison comparison;
    comparison.setting =
        absl::StrCat(row.Text("model"), ", ", row.Text("gpus"), " GPUs");
    comparison.schedule = absl::StrCat("pp ", row.Text("pp"), " vpp ",
                                       row.Text("vpp"), ", s a step");
    comparison.published = row.Text("seconds");
    comparison.simulated = run.report.iteration_s;
    comparison.rounded = absl::StrFormat("%.2f", run.report.iteration_s);
    comparison.rule = Comparison::Rule::kWithin;
    comparison.tolerance = kTolerance;
    comparisons.push_back(std::move(comparison));
  }
  return comparisons;
}

const RegisterPaper kRow({
    .name = "megatron-table1",
    .summary = "Efficient Large-Scale Language Model Training on GPU Clusters "
               "Using Megatron-LM, arXiv 2104.04473, table 1",
    .metric = "seconds of a step on A100 by the analytic cost model; "
              "published: from the table's FLOP/s and its equation 3",
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright::megatron_table1
