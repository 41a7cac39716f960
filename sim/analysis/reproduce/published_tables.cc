// Published tables that are data: folders of experiments/papers with a
// paper.csv, which names the files of the rows and what is measured.
// columns.csv has the columns that are compared: `label` and `digits` of what
// is printed, `rule` and `tolerance` of the comparison, fields that hold for
// the column. Here stands what the cells do not say: how to measure.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/reproduce/steps.h"
#include "sim/base/status.h"
#include "sim/cost/kernel_time.h"
#include "sim/memory/schedule_memory.h"
#include "sim/memory/stage_memory.h"
#include "sim/model/flops.h"
#include "sim/run/simulated_run.h"

namespace pipewright::published_tables {
namespace {

constexpr char kNotCompared[] = "-";
constexpr char kPeakMemory[] = "peak memory";
constexpr double kGiB = 1024.0 * 1024 * 1024;

// What is measured: the cells of a row and of a column.
struct Case {
  const TableRow& cells;
  const std::string& engine;
  RunContext* context;

  absl::StatusOr<PreparedRun> Prepared() const {
    PW_ASSIGN_OR_RETURN(const RunConfig config, ConfigOf(cells, engine));
    return Prepare(config, context);
  }
  absl::StatusOr<Report> Simulated() const {
    PW_ASSIGN_OR_RETURN(const RunConfig config, ConfigOf(cells, engine));
    PW_ASSIGN_OR_RETURN(SimulatedRun run, Simulate(config, context));
    return std::move(run.report);
  }
};
using Measure = absl::StatusOr<double> (*)(const Case& each);

absl::StatusOr<double> StepSeconds(const Case& each) {
  PW_ASSIGN_OR_RETURN(const Report report, each.Simulated());
  return report.iteration_s;
}

absl::StatusOr<double> MfuPercent(const Case& each) {
  PW_ASSIGN_OR_RETURN(const Report report, each.Simulated());
  return 100 * *report.throughput->mfu();
}

absl::StatusOr<double> PeakGib(const Case& each) {
  PW_ASSIGN_OR_RETURN(const PreparedRun run, each.Prepared());
  const ScheduleMemory& memory = *run.memory->memory;
  return static_cast<double>(memory.ranks[memory.WorstRank()].peak()) / kGiB;
}

// The first rank, without the embedding and the head.
absl::StatusOr<RankMemory> LayersOfFirstRank(const Case& each) {
  PW_ASSIGN_OR_RETURN(const PreparedRun run, each.Prepared());
  const PreparedModel& model = *run.prepared_model;
  const Schedule& schedule = *run.schedule.lowered;
  StageLayout layout;
  const int64_t count = model.spec.layers / schedule.stages();
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    layout.stages.push_back({{.kind = BlockKind::kDenseLayer,
                              .first_layer = stage * count,
                              .count = count}});
  }
  return BuildScheduleMemory(model.spec, model.training, layout, schedule, {})
      .ranks[0];
}

// Parameters or activations in GiB, or activations in per cent of those with
// nothing recomputed and no sequence parallelism.
absl::StatusOr<double> LayerMemory(const Case& each) {
  PW_ASSIGN_OR_RETURN(const RankMemory rank, LayersOfFirstRank(each));
  const std::string& column = each.cells.Text("column");
  if (column == "parameters_gib") {
    MemoryBytes parameters = rank.fixed;
    for (const MemoryKind kind :
         {MemoryKind::kPlaceholders, MemoryKind::kWorkspace,
          MemoryKind::kBuffers}) {
      parameters[kind] = 0;
    }
    return static_cast<double>(parameters.total()) / kGiB;
  }
  const auto activations = static_cast<double>(rank.peak_activations);
  if (absl::EndsWith(column, "_gib")) return activations / kGiB;
  TableRow plain = each.cells;
  plain.Set("strategy.sequence_parallel", "false");
  plain.Set("strategy.recompute", "none");
  PW_ASSIGN_OR_RETURN(const RankMemory all,
                      LayersOfFirstRank({plain, each.engine, each.context}));
  return 100 * activations / static_cast<double>(all.peak_activations);
}

// hidden and heads say what a split backward holds until its W: M_W / M =
// 32h / (34h + 5as), table 1 and appendix G of the paper; s: section 5.
absl::StatusOr<double> BubbleRate(const Case& each) {
  constexpr double kSequence = 1024;
  const TableRow& cells = each.cells;
  PW_ASSIGN_OR_RETURN(RunConfig config, ConfigOf(cells, each.engine));
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
                      Simulate(config, each.context, options));
  double span_s = run.report.span_s.per_rank;
  if (cells.Has("without_hops")) {
    span_s -=
        cells.Integer("strategy.pp") * 1e-3 * cells.Number("costs.p2p_ms");
  }
  return (span_s - run.report.busy_s) / span_s;
}

// TFLOP/s of a product or of attention, GB/s of a stream.
absl::StatusOr<double> KernelRate(const Case& each) {
  // Long enough for a rate, whatever it is.
  constexpr double kStreamBytes = 1e9;
  constexpr double kAttentionFlops = 1e15;
  const TableRow& cells = each.cells;
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

// PipeOffload's k from the inventory of a layer's tensors and its operations,
// on A100 (section 3 of the paper).
absl::StatusOr<double> OffloadRatio(const Case& each) {
  constexpr double kFlops = 220e12;
  constexpr double kBytesPerSecond = 15e9;
  PW_ASSIGN_OR_RETURN(const PreparedRun run, each.Prepared());
  const ModelSpec& model = run.prepared_model->spec;
  const StageMemory layer = BuildStageMemory(
      model, run.prepared_model->training,
      {{.kind = BlockKind::kDenseLayer, .first_layer = 0, .count = 1}}, 0);
  ModelSpec two = model;
  two.layers = 2;
  // What a second layer adds; causal attention is counted whole, as there.
  const double flops = ModelFlopsPerToken(two, model.sequence, false) -
                       ModelFlopsPerToken(model, model.sequence, false);
  const double copies_s = 2 * static_cast<double>(layer.kept) / kBytesPerSecond;
  return copies_s / (flops * static_cast<double>(model.sequence) / kFlops);
}

Measure MeasureOf(const std::string& name) {
  static const auto* const measures = new std::map<std::string, Measure>{
      {"bubble rate", &BubbleRate},     {"kernel rate", &KernelRate},
      {"layer memory", &LayerMemory},   {"mfu", &MfuPercent},
      {"offload ratio", &OffloadRatio}, {kPeakMemory, &PeakGib},
      {"step seconds", &StepSeconds}};
  return measures->at(name);
}

// SimuMax's own model is 0.46 % off in the mean.
Comparison MeanError(const std::vector<Comparison>& rows) {
  constexpr double kMeanPercent = 0.5;
  double errors = 0;
  for (const Comparison& row : rows) {
    errors += std::abs(row.simulated / NumberOf(row.published) - 1);
  }
  Comparison out =
      CompareNumbers("all of them", "mean error in %", 0,
                     100 * errors / static_cast<double>(rows.size()), 3,
                     Comparison::Rule::kAtMost, kMeanPercent, false);
  out.published = "0";
  return out;
}

Comparison CompareCells(const TableRow& cells, const std::string& setting,
                        const std::string& published, double simulated) {
  Comparison out;
  out.setting = cells.Fill(setting);
  out.schedule = cells.Fill(cells.Text("label"));
  out.published = published;
  out.simulated = simulated;
  // As many digits as are published, unless the column says how many.
  const size_t point = std::min(published.find('.'), published.size() - 1);
  const int digits = cells.Has("digits")
                         ? cells.Integer("digits")
                         : static_cast<int>(published.size() - 1 - point);
  out.rounded = absl::StrFormat("%.*f", digits, simulated);
  out.rule = RuleOf(cells.Text("rule"));
  if (cells.Has("tolerance")) out.tolerance = cells.Number("tolerance");
  out.in_paper = !cells.Has("in_paper") || cells.Text("in_paper") == "yes";
  return out;
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string& folder,
                                                  const TableRow& paper,
                                                  const std::string& engine) {
  const std::vector<std::string> files =
      absl::StrSplit(paper.Text("rows"), ' ');
  std::vector<TableRow> rows = ReadTable(files[0]);
  for (size_t file = 1; file < files.size(); ++file) {
    JoinTable(files[file], &rows);
  }
  const std::vector<TableRow> columns =
      ReadTable(absl::StrCat(folder, "/columns"));
  const Measure measure = MeasureOf(paper.Text("measure"));
  std::vector<Comparison> out;
  RunContext context;
  for (const TableRow& row : rows) {
    for (const TableRow& column : columns) {
      const std::string& published = row.Text(column.Text("column"));
      if (published == kNotCompared) continue;
      TableRow cells = row;
      cells.Take(column);
      PW_ASSIGN_OR_RETURN(const double simulated,
                          measure({cells, engine, &context}));
      out.push_back(
          CompareCells(cells, paper.Text("setting"), published, simulated));
    }
  }
  if (paper.Text("measure") == kPeakMemory) out.push_back(MeanError(out));
  return out;
}

using Runner = std::function<absl::StatusOr<std::vector<Comparison>>(
    const std::string& engine)>;

Runner RunnerOf(const std::string& folder, const TableRow& paper) {
  const std::string& measure = paper.Text("measure");
  if (measure == "deep optimizer states") {
    return &deep_optimizer_states::Reproduce;
  }
  if (measure == "odc") return &odc::Reproduce;
  if (measure == "pipeoffload figure15") {
    return &pipeoffload_figure15::Reproduce;
  }
  return [folder, paper, measure](const std::string& engine) {
    return measure == "steps" ? ReproduceSteps(folder, engine)
                              : Reproduce(folder, paper, engine);
  };
}

std::vector<Paper> ReadPapers() {
  std::vector<Paper> papers;
  for (const std::string& folder : FoldersWith("paper")) {
    const TableRow row = ReadTable(absl::StrCat(folder, "/paper"))[0];
    papers.push_back({.name = absl::StrReplaceAll(folder, {{"_", "-"}}),
                      .summary = row.Text("summary"),
                      .metric = row.Text("metric"),
                      .run = RunnerOf(folder, row)});
  }
  std::sort(papers.begin(), papers.end(),
            [](const Paper& a, const Paper& b) { return a.name < b.name; });
  return papers;
}

}  // namespace
}  // namespace pipewright::published_tables

namespace pipewright {

std::vector<const Paper*> AllPapers() {
  static const auto* const papers =
      new std::vector<Paper>(published_tables::ReadPapers());
  std::vector<const Paper*> all;
  for (const Paper& paper : *papers) all.push_back(&paper);
  return all;
}

}  // namespace pipewright
