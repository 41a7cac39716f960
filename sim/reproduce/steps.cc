#include "sim/reproduce/steps.h"

#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/model/model.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// A column that is added: model and fields of steps.csv alone.
constexpr char kStrategy[] = "strategy";

std::string DeviceOf(const TableRow& row) {
  const std::string& device = row.Text("costs.analytic.device");
  if (device != "auto") return device;
  std::string name = row.Text("system.preset");
  name = name.substr(0, name.find("-nvl"));
  return absl::StartsWith(name, "dgx-") ? name.substr(4) : name;
}

bool IsMixture(const ModelChoice& model) {
  if (model.experts.value_or(0) > 0) return true;
  const auto preset = FindModel(model.preset.value_or(""));
  return preset.ok() && preset->has_experts();
}

// Rows of one kind have one goal.
std::string KindOf(const TableRow& row, const RunConfig& config) {
  const std::string device = DeviceOf(row);
  const bool hopper = absl::StartsWith(device, "h");
  if (IsMixture(config.model)) {
    return hopper ? "experts, Hopper" : "experts, Blackwell";
  }
  if (row.Text("strategy.precision") == "nvfp4") return "dense, nvfp4";
  if (hopper) return "dense, H100 and H200";
  return device == "b200" ? "dense, B200" : "dense, GB200, GB300 and B300";
}

std::string StrategyText(const TableRow& row) {
  std::string text = absl::StrCat(
      DeviceOf(row),
      row.Fill(" x {gpus}, {strategy.precision}, s {strategy.sequence}"));
  for (const char* degree : {"tp", "pp", "vpp", "cp", "ep", "dp"}) {
    const std::string& value = row.Text(absl::StrCat("strategy.", degree));
    if (value != "1") absl::StrAppend(&text, " ", degree, " ", value);
  }
  return absl::StrCat(
      text,
      row.Fill(" mb {strategy.microbatch_size} x {strategy.microbatches}"));
}

std::string GroupOf(const TableRow& row) {
  const int batch = row.Integer("strategy.dp") *
                    row.Integer("strategy.microbatch_size") *
                    row.Integer("strategy.microbatches");
  return absl::StrCat(row.Text("model"), ", ", DeviceOf(row), " x ",
                      row.Text("gpus"), ", batch ", batch, ", sequence ",
                      row.Text("strategy.sequence"));
}

struct Estimate {
  double seconds = 0;
  StepFacts facts;
};

absl::StatusOr<Estimate> EstimateOf(const TableRow& row,
                                    const std::string& engine,
                                    RunContext* context) {
  PW_ASSIGN_OR_RETURN(const RunConfig config, ConfigOfStep(row, engine));
  SimulateOptions options;
  options.interval = true;
  PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                      Simulate(config, context, options));
  Estimate out;
  out.seconds = run.report.iteration_s;
  out.facts.kind = KindOf(row, config);
  if (run.report.interval) {
    out.facts.low = run.report.interval->low_s;
    out.facts.high = run.report.interval->high_s;
  }
  if (run.report.memory) {
    const ScheduleMemory& memory = *run.report.memory->memory;
    out.facts.needed_bytes =
        static_cast<double>(memory.ranks[memory.WorstRank()].needed());
    out.facts.fits = run.report.memory->fits();
  }
  return out;
}

Comparison CompareStep(const TableRow& row,
                       const absl::StatusOr<Estimate>& estimate) {
  Comparison out;
  out.setting = row.Text("entry");
  out.schedule = StrategyText(row);
  out.published = absl::StrFormat("%.4g", row.Number("seconds"));
  out.rounded = "-";
  out.rule = Comparison::Rule::kShown;
  StepFacts facts;
  if (estimate.ok()) {
    facts = estimate->facts;
    out.simulated = estimate->seconds;
    out.rounded = absl::StrFormat("%.4g", estimate->seconds);
  } else {
    facts.refused = std::string(estimate.status().message());
  }
  if (row.Text("counts") != "yes") facts.excluded = row.Text("counts");
  facts.note = row.Text("note");
  if (row.Has("reserved_gib")) {
    facts.reserved_bytes = row.Number("reserved_gib") * kGiB;
  }
  facts.group = GroupOf(row);
  out.step = std::move(facts);
  return out;
}

}  // namespace

std::vector<TableRow> ReadSteps(const std::string& folder) {
  std::vector<TableRow> rows = ReadTable(absl::StrCat(folder, "/steps"));
  for (TableRow& row : rows) {
    std::string strategy = row.Text("model");
    for (const auto& [column, cell] : row.cells()) {
      if (absl::StrContains(column, '.')) absl::StrAppend(&strategy, "|", cell);
    }
    row.Take(TableRow({{kStrategy, strategy}}));
  }
  for (const char* beside : {"/models", "/recipes"}) {
    const std::string path = absl::StrCat(folder, beside);
    if (HasTable(path)) JoinTable(path, &rows);
  }
  const TableRow all = ReadTable(absl::StrCat(folder, "/columns"))[0];
  for (TableRow& row : rows) row.Take(all);
  return rows;
}

absl::StatusOr<RunConfig> ConfigOfStep(const TableRow& row,
                                       const std::string& engine) {
  const std::string& model = row.Text("model");
  if (!row.Has("model.layers") && !FindModel(model).ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the shape of ", model, " is not known"));
  }
  if (!row.Has("strategy.precision")) {
    return absl::InvalidArgumentError("precision not stated");
  }
  PW_ASSIGN_OR_RETURN(RunConfig config, ConfigOf(row, engine));
  if (!config.model.preset) config.model.sequence = config.strategy.sequence;
  return config;
}

absl::StatusOr<std::vector<Comparison>> ReproduceSteps(
    const std::string& folder, const std::string& engine) {
  std::vector<Comparison> out;
  std::map<std::string, absl::StatusOr<Estimate>> estimates;
  RunContext context;
  for (const TableRow& row : ReadSteps(folder)) {
    const std::string& strategy = row.Text(kStrategy);
    if (estimates.count(strategy) == 0) {
      estimates.emplace(strategy, EstimateOf(row, engine, &context));
    }
    out.push_back(CompareStep(row, estimates.at(strategy)));
  }
  return out;
}

}  // namespace pipewright
