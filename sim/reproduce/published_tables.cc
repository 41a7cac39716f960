// Published tables that are data. A folder of experiments/papers has the rows
// and, in columns.csv, the columns that are compared: `label` and `digits` of
// what is printed, `rule` and `tolerance` of the comparison, fields that hold
// for the column. Here stands what the cells do not say: how to measure.
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "sim/base/check.h"
#include "sim/base/status.h"
#include "sim/cost/kernel_time.h"
#include "sim/memory/schedule_memory.h"
#include "sim/memory/stage_memory.h"
#include "sim/model/flops.h"
#include "sim/reproduce/paper.h"
#include "sim/reproduce/table.h"
#include "sim/run/simulated_run.h"

namespace pipewright::published_tables {
namespace {

constexpr char kNotCompared[] = "-";
constexpr char kZeroBubbleRate[] =
    "bubble rate: (longest span of a rank - its work) / span";

// What the cells of a row and of a column give.
using Measure = absl::StatusOr<double> (*)(const TableRow& cells,
                                           const std::string& engine,
                                           RunContext* context);

struct PublishedTable {
  Paper paper;
  std::vector<std::string> files;  // of its rows; the later ones are joined
  std::string setting;             // names of columns in braces
  Measure measure = nullptr;
  // May add a comparison of all of them; may be null.
  void (*finish)(std::vector<Comparison>*) = nullptr;
};

absl::StatusOr<double> StepSeconds(const TableRow& cells,
                                   const std::string& engine,
                                   RunContext* context) {
  PW_ASSIGN_OR_RETURN(const RunConfig config, ConfigOf(cells, engine));
  PW_ASSIGN_OR_RETURN(const SimulatedRun run, Simulate(config, context));
  return run.report.iteration_s;
}

absl::StatusOr<double> MfuPercent(const TableRow& cells,
                                  const std::string& engine,
                                  RunContext* context) {
  PW_ASSIGN_OR_RETURN(const RunConfig config, ConfigOf(cells, engine));
  PW_ASSIGN_OR_RETURN(const SimulatedRun run, Simulate(config, context));
  return 100 * *run.report.throughput->mfu();
}

absl::StatusOr<double> PeakGib(const TableRow& cells, const std::string& engine,
                               RunContext* context) {
  PW_ASSIGN_OR_RETURN(const RunConfig config, ConfigOf(cells, engine));
  PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(config, context));
  const ScheduleMemory& memory = *run.memory->memory;
  return static_cast<double>(memory.ranks[memory.WorstRank()].peak()) /
         (1024.0 * 1024 * 1024);
}

// hidden and heads say what a split backward holds until its W: M_W / M =
// 32h / (34h + 5as), table 1 and appendix G of the paper; s: section 5.
absl::StatusOr<double> BubbleRate(const TableRow& cells,
                                  const std::string& engine,
                                  RunContext* context) {
  constexpr double kSequence = 1024;
  PW_ASSIGN_OR_RETURN(RunConfig config, ConfigOf(cells, engine));
  config.iterations = 1;
  if (cells.Has("limit")) {
    config.strategy.max_activations =
        cells.Number("limit") * *config.strategy.pp;
  }
  const double hidden = cells.Number("hidden");
  config.costs.held_until_weight =
      32 * hidden / (34 * hidden + 5 * cells.Number("heads") * kSequence);
  SimulateOptions options;
  options.admit = [](const PreparedRun& prepared, const Program&) {
    return prepared.limit();
  };
  PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                      Simulate(config, context, options));
  double span_s = run.report.span_s.per_rank;
  if (cells.Has("without_hops")) {
    span_s -=
        cells.Integer("strategy.pp") * 1e-3 * cells.Number("costs.p2p_ms");
  }
  return (span_s - run.report.busy_s) / span_s;
}

// TFLOP/s of a product or of attention, GB/s of a stream.
absl::StatusOr<double> KernelRate(const TableRow& cells, const std::string&,
                                  RunContext*) {
  // Long enough for a rate, whatever it is.
  constexpr double kStreamBytes = 1e9;
  constexpr double kAttentionFlops = 1e15;
  PW_ASSIGN_OR_RETURN(const DeviceSpec device,
                      FindDevice(cells.Text("device")));
  const double m = cells.Number("m");
  const double n = cells.Number("n");
  const double k = cells.Number("k");
  const std::string& kernel = cells.Text("kernel");
  if (kernel == "stream") {
    return 1e-9 * kStreamBytes / StreamSeconds(device, kStreamBytes);
  }
  if (kernel == "attention") {
    const std::string& pass = cells.Text("pass");
    const OpPass direction = absl::StrContains(pass, "forward")
                                 ? OpPass::kForward
                                 : OpPass::kBackwardInput;
    return 1e-12 * kAttentionFlops /
           AttentionSeconds(device, direction, absl::StartsWith(pass, "causal"),
                            kAttentionFlops, m);
  }
  const bool fp8 = cells.Text("precision") == "fp8";
  const double bytes = (fp8 ? 1 : 2) * (m * k + n * k) + 2 * m * n;
  return 1e-12 * 2 * m * n * k /
         GemmSeconds(device, fp8 ? Precision::kFp8 : Precision::kBf16, m, n, k,
                     1, bytes);
}

// PipeOffload's k from the inventory of a layer's tensors and its operations;
// A100 as in section 3 of the paper.
absl::StatusOr<double> OffloadRatio(const TableRow& cells, const std::string&,
                                    RunContext*) {
  constexpr double kFlops = 220e12;
  constexpr double kBytesPerSecond = 15e9;
  ModelSpec model;
  model.layers = 1;
  model.hidden = cells.Integer("hidden");
  model.heads = model.kv_heads = model.hidden / 128;
  model.ffn_hidden = 4 * model.hidden;
  model.vocabulary = 50304;
  model.sequence = cells.Integer("sequence");
  model.layer_norm = model.dropout = model.qkv_bias = model.bias = true;
  TrainingSpec training;
  training.sequence = model.sequence;
  training.microbatch_size = 1;
  training.recompute = Recompute::kNormActivation;
  const StageMemory layer = BuildStageMemory(
      model, training,
      {{.kind = BlockKind::kDenseLayer, .first_layer = 0, .count = 1}}, 0);
  ModelSpec two = model;
  two.layers = 2;
  // What a second layer adds; causal attention is counted whole, as there.
  const double flops = ModelFlopsPerToken(two, model.sequence, false) -
                       ModelFlopsPerToken(model, model.sequence, false);
  const double copies_s = 2 * static_cast<double>(layer.kept) / kBytesPerSecond;
  return copies_s / (flops * static_cast<double>(model.sequence) / kFlops);
}

// SimuMax's own model is 0.46 % off in the mean.
void AddMeanError(std::vector<Comparison>* rows) {
  constexpr double kMeanPercent = 0.5;
  double errors = 0;
  for (const Comparison& row : *rows) {
    errors += std::abs(row.simulated / NumberOf(row.published) - 1);
  }
  const double mean = 100 * errors / static_cast<double>(rows->size());
  rows->push_back({"all of them", "mean error in %", "0", mean,
                   absl::StrFormat("%.3f", mean), Comparison::Rule::kAtMost,
                   kMeanPercent, false});
}

int DigitsAfterPoint(const std::string& number) {
  const size_t point = number.find('.');
  return point == std::string::npos
             ? 0
             : static_cast<int>(number.size() - point - 1);
}

Comparison CompareCells(const TableRow& cells, const std::string& setting,
                        const std::string& published, double simulated) {
  Comparison out;
  out.setting = cells.Fill(setting);
  out.schedule = cells.Fill(cells.Text("label"));
  out.published = published;
  out.simulated = simulated;
  const int digits = cells.Has("digits") ? cells.Integer("digits")
                                         : DigitsAfterPoint(published);
  out.rounded = absl::StrFormat("%.*f", digits, simulated);
  out.rule = RuleOf(cells.Text("rule"));
  if (cells.Has("tolerance")) out.tolerance = cells.Number("tolerance");
  out.in_paper = !cells.Has("in_paper") || cells.Text("in_paper") == "yes";
  return out;
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const PublishedTable& table,
                                                  const std::string& engine) {
  std::vector<TableRow> rows = ReadTable(table.files[0]);
  for (size_t file = 1; file < table.files.size(); ++file) {
    JoinTable(table.files[file], &rows);
  }
  const std::string folder =
      absl::StrReplaceAll(table.paper.name, {{"-", "_"}});
  std::vector<Comparison> out;
  RunContext context;
  for (const TableRow& row : rows) {
    for (const TableRow& column : ReadTable(absl::StrCat(folder, "/columns"))) {
      const std::string& published = row.Text(column.Text("column"));
      if (published == kNotCompared) continue;
      TableRow cells = row;
      cells.Take(column);
      PW_ASSIGN_OR_RETURN(const double simulated,
                          table.measure(cells, engine, &context));
      out.push_back(CompareCells(cells, table.setting, published, simulated));
    }
  }
  if (table.finish != nullptr) table.finish(&out);
  return out;
}

std::vector<Paper> PapersOf(const std::vector<PublishedTable>& tables) {
  std::vector<Paper> papers;
  for (const PublishedTable& table : tables) {
    papers.push_back(table.paper);
    papers.back().run = [table](const std::string& engine) {
      return Reproduce(table, engine);
    };
  }
  return papers;
}

const RegisterPapers kTables(PapersOf({
    {.paper = {.name = "korthikanti-table5",
               .summary = "Reducing Activation Recomputation in Large "
                          "Transformer Models, arXiv 2205.05198, table 5",
               .metric = "seconds of a step on A100 by the analytic cost "
                         "model"},
     .files = {"korthikanti_table5/table5"},
     .setting = "{model}, pp {strategy.pp} vpp {strategy.vpp}",
     .measure = &StepSeconds},
    {.paper = {.name = "llama3-table4",
               .summary = "The Llama 3 Herd of Models, arXiv 2407.21783, "
                          "table 4",
               .metric = "MFU on H100 by the analytic cost model"},
     .files = {"llama3_table4/table4"},
     .setting = "{model}, {gpus} GPUs",
     .measure = &MfuPercent},
    {.paper = {.name = "megatron-table1",
               .summary = "Efficient Large-Scale Language Model Training on "
                          "GPU Clusters Using Megatron-LM, arXiv 2104.04473, "
                          "table 1",
               .metric = "seconds of a step on A100 by the analytic cost "
                         "model; published: from the table's FLOP/s and its "
                         "equation 3"},
     .files = {"megatron_table1/table1"},
     .setting = "{model}, {gpus} GPUs",
     .measure = &StepSeconds},
    {.paper = {.name = "pipeoffload-table",
               .summary = "PipeOffload, arXiv 2503.01328, figure 1 (left): k "
                          "on A100",
               .metric = "both copies of a layer's activations over its F, B "
                         "and W"},
     .files = {"pipeoffload_table/ratio"},
     .setting = "hidden {hidden}, sequence {sequence}",
     .measure = &OffloadRatio},
    {.paper = {.name = "published-kernels",
               .summary = "single kernels measured by others, sources in the "
                          "table",
               .metric = "TFLOP/s (gemm, attention) or GB/s (stream) of the "
                         "analytic model"},
     .files = {"published_kernels/kernels"},
     .setting = "{device} {kernel} {precision}",
     .measure = &KernelRate},
    {.paper = {.name = "simumax-memory",
               .summary = "SimuMax, release 1.2, runs of Megatron-LM on B200",
               .metric = "peak allocation of a device in GiB, 1F1B"},
     .files = {"simumax_memory/table", "simumax_memory/models"},
     .setting = "{model}, {model.layers} layers",
     .measure = &PeakGib,
     .finish = &AddMeanError},
    {.paper = {.name = "zero-bubble-figure7",
               .summary = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, "
                          "figure 7",
               .metric = "bubble rate of the planner over the memory limit"},
     .files = {"zero_bubble_table5/times", "zero_bubble_figure7/reference"},
     .setting = "{model}, pp {strategy.pp}, microbatches "
                "{strategy.microbatches}",
     .measure = &BubbleRate},
    {.paper = {.name = "zero-bubble-table5",
               .summary = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, "
                          "table 5",
               .metric = kZeroBubbleRate},
     .files = {"zero_bubble_table5/times", "zero_bubble_table5/published"},
     .setting = "{model}, pp {strategy.pp}, microbatches "
                "{strategy.microbatches}",
     .measure = &BubbleRate},
    {.paper = {.name = "zero-bubble-table8",
               .summary = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, "
                          "table 8",
               .metric = kZeroBubbleRate},
     .files = {"zero_bubble_table8/times", "zero_bubble_table8/published"},
     .setting = "{model}, pp {strategy.pp}, microbatches "
                "{strategy.microbatches}",
     .measure = &BubbleRate},
}));

}  // namespace
}  // namespace pipewright::published_tables
