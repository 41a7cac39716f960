// The files of experiments/papers/pipeoffload_figure15: memory of activations
// and throughput of the schedules of PipeOffload, with copies over PCIe
// switches that two devices share.
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"
#include "sim/run/simulated_run.h"

namespace pipewright::pipeoffload_figure15 {
namespace {

// Of a ratio to 1F1B, beside what the rounding of both numbers leaves open.
constexpr double kTolerance = 0.15;
// Section 3 of the paper: what one A100 reaches.
constexpr double kPcieBytesPerSecond = 15e9;
constexpr double kFlops = 220e12;
// Until its pair has its first load, the authors' planner gives an offload 0.7
// of its time.
constexpr double kAloneFactor = 1 / 0.7;

// F, B or W of one microbatch through the layers of a rank, as the paper
// counts: 12bsh(6h + s) for the three.
double PassSeconds(const TableRow& row) {
  const double hidden = row.Number("hidden");
  const double sequence = row.Number("sequence");
  const double layers = row.Number("layers") / row.Number("pp");
  return layers * 4 * sequence * hidden * (6 * hidden + sequence) / kFlops;
}

RunConfig ConfigOf(const TableRow& row, const std::string& engine) {
  RunConfig config;
  config.engine = engine;
  config.iterations = 1;
  ModelChoice& model = config.model;
  model.layers = row.Integer("layers");
  model.hidden = row.Integer("hidden");
  model.heads = row.Integer("heads");
  model.ffn_hidden = 4 * row.Integer("hidden");
  model.vocabulary = 50304;
  model.sequence = row.Integer("sequence");
  model.layer_norm = model.dropout = model.qkv_bias = model.bias = true;
  config.system.preset = "dgx-a100";
  config.system.pcie.bytes_per_s = kPcieBytesPerSecond;
  config.system.params["pcie_alone_factor"] = absl::StrFormat("%.17g", kAloneFactor);
  config.costs.forward_s = config.costs.backward_input_s =
      config.costs.backward_weight_s = PassSeconds(row);
  config.schedule.name = row.Text("schedule");
  StrategyChoice& strategy = config.strategy;
  strategy.pp = row.Integer("pp");
  const bool chunks = row.Text("schedule") != "1f1b";
  strategy.vpp = chunks ? row.Integer("vpp") : 1;
  strategy.microbatches = row.Integer("microbatches");
  // Layer norm, GeLU and dropout are computed again (section 4.2).
  strategy.recompute = Recompute::kNormActivation;
  // As the authors' runtime.
  strategy.offload_sharing = CopySharing::kInTurn;
  strategy.data_parallel = DataParallel::kNone;
  return config;
}

// How far a ratio of two numbers may lie off, both being rounded to integers.
double Rounding(double above, double below) {
  const double ratio = above / below;
  return std::max((above + 0.5) / (below - 0.5) / ratio - 1,
                  1 - (above - 0.5) / (below + 0.5) / ratio);
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& engine) {
  struct Base {
    double published = 0;
    double held = 0;    // bytes
    double chunks = 0;  // activations of one forward, of all layers of a rank
    double step_s = 0;
    double mfu = 0;
  };
  std::map<std::string, Base> plain;  // 1F1B, by sequence
  std::vector<Comparison> out;
  RunContext context;
  for (const TableRow& row : ReadTable("pipeoffload_figure15/figure15")) {
    PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                        Simulate(ConfigOf(row, engine), &context));
    double held = 0;
    for (const RankMemory& rank : run.report.memory->memory->ranks) {
      held = std::max(held, static_cast<double>(rank.peak_activations));
    }
    const std::vector<double>& peaks = run.report.peak_activations;
    const double chunks = *std::max_element(peaks.begin(), peaks.end());
    const std::string sequence = row.Text("sequence");
    const double published = row.Number("gigabytes");
    Base& base = plain[sequence];
    const bool is_base = row.Text("schedule") == "1f1b";
    const double step_s = run.report.iteration_s;
    if (is_base) {
      base = {published, held, chunks, step_s, row.Number("mfu_percent")};
    }
    if (is_base) continue;
    const std::string setting =
        absl::StrCat("10.5B, pp 8, vpp ", row.Text("vpp"), ", sequence ",
                     sequence, ", ", row.Text("column"));
    const double ratio = published / base.published;
    const double tolerance =
        std::max(kTolerance, Rounding(published, base.published));
    const std::string text = absl::StrFormat("%.3f", ratio);
    const auto compare = [&](const char* what, double found, bool judged) {
      out.push_back(
          {setting, what, text, found, absl::StrFormat("%.3f", found),
           judged ? Comparison::Rule::kWithin : Comparison::Rule::kShown,
           judged ? tolerance : tolerance * ratio});
    };
    compare("activations over 1F1B", chunks / base.chunks, true);
    // With the gradients that W needs, which the authors' planner does not
    // count; the README says which of those with copies miss the tolerance.
    compare("bytes of activations over 1F1B", held / base.held,
            !run.report.offload);
    const double faster = base.step_s / step_s;
    out.push_back(
        {setting, "throughput over 1F1B",
         absl::StrFormat("%.2f", row.Number("mfu_percent") / base.mfu), faster,
         absl::StrFormat("%.2f", faster), Comparison::Rule::kShown});
    if (!run.report.offload) continue;
    const double k = run.report.offload->least_ratio;
    out.push_back({setting, "k of a stage without ends", row.Text("k"), k,
                   absl::StrFormat("%.2f", k), Comparison::Rule::kShown});
  }
  return out;
}

const RegisterPaper kRow({
    .name = "pipeoffload-figure15",
    .summary = "PipeOffload, arXiv 2503.01328, figure 15, 10.5B on 8 A100",
    .metric = "peak of activations over that of 1F1B, by their number; in "
              "bytes, where PO-H at 16384 is too high by 20 % and rows with "
              "copies are not judged; throughput over it",
    .run = &Reproduce,
});

}  // namespace
}  // namespace pipewright::pipeoffload_figure15
