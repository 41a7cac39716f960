#include "sim/analysis/reproduce/steps.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"
#include "sim/model/model.h"
#include "sim/run/simulated_run.h"

namespace pipewright {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
// A column that is added: model and fields of steps.csv alone.
constexpr char kStrategy[] = "strategy";
// Tokens of a sample from which attention takes most of a layer's time.
constexpr int64_t kLongSequence = 32768;
// Weight of what lies outside of a 90 % interval: 2 / (1 - 0.9).
constexpr double kOutsideWeight = 20;
// The constant bands that are tried.
constexpr double kBandStep = 0.0025;
constexpr double kWidestBand = 3;

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

// What an architecture is called, in any size and release: "llama" of
// "Llama3.1-405B" and "llama3-8b", "gptoss" of "GPT-OSS 120B".
std::string ArchitectureOf(absl::string_view model) {
  std::string name;
  for (const char letter : model) {
    if (absl::ascii_isdigit(letter)) break;
    if (absl::ascii_isalpha(letter)) name += absl::ascii_tolower(letter);
  }
  return name;
}

// Boards of one chip: "h" of H100, H200 and GH200, "b2" of B200 and GB200.
std::string ChipOf(absl::string_view device) {
  const std::string name(absl::StripPrefix(device, "g"));
  return absl::StartsWith(name, "b") ? name.substr(0, 2) : name.substr(0, 1);
}

// Rows of one kind have one goal.
std::string KindOf(const TableRow& row, const RunConfig& config) {
  const std::string device = DeviceOf(row);
  const bool hopper = absl::StartsWith(device, "h");
  if (IsMixture(config.model)) {
    return hopper ? "experts, Hopper" : "experts, Blackwell";
  }
  if (row.Text("strategy.precision") == "nvfp4") return "dense, nvfp4";
  const bool is_fused =
      config.costs.analytic_kernels.value_or(FrameworkKernels::kFused) ==
      FrameworkKernels::kFused;
  if (!is_fused && config.strategy.sequence.value_or(0) >= kLongSequence) {
    return "dense, long, PyTorch";
  }
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

// Fills in what is estimated, the same for all rows of a strategy.
absl::Status Estimate(const TableRow& row, const std::string& engine,
                      RunContext* context, Comparison* out) {
  PW_ASSIGN_OR_RETURN(const RunConfig config, ConfigOfStep(row, engine));
  SimulateOptions options;
  options.interval = true;
  PW_ASSIGN_OR_RETURN(const SimulatedRun run,
                      Simulate(config, context, options));
  out->simulated = run.report.iteration_s;
  out->rounded = absl::StrFormat("%.4g", run.report.iteration_s);
  StepFacts& facts = *out->step;
  facts.kind = KindOf(row, config);
  if (run.report.interval) {
    facts.low = run.report.interval->low_s;
    facts.high = run.report.interval->high_s;
  }
  if (run.report.memory) {
    const ScheduleMemory& memory = *run.report.memory->memory;
    facts.needed_bytes =
        static_cast<double>(memory.ranks[memory.WorstRank()].needed());
    facts.fits = run.report.memory->fits();
  }
  return absl::OkStatus();
}

// Fills in what is known of a row without an estimate.
void Describe(const TableRow& row, Comparison* out) {
  out->setting = row.Text("entry");
  out->schedule = StrategyText(row);
  out->published = absl::StrFormat("%.4g", row.Number("seconds"));
  out->rule = Comparison::Rule::kShown;
  StepFacts& facts = *out->step;
  if (row.Text("counts") != "yes") facts.excluded = row.Text("counts");
  facts.note = row.Text("note");
  if (row.Has("reserved_gib")) {
    facts.reserved_bytes = row.Number("reserved_gib") * kGiB;
  }
  facts.group = GroupOf(row);
  facts.model = ArchitectureOf(row.Text("model"));
  facts.device = ChipOf(DeviceOf(row));
  facts.framework = row.Has("strategy.framework")
                        ? row.Text("strategy.framework")
                        : "megatron";
}

KindSummary SummaryOf(const std::string& kind,
                      const std::vector<const Comparison*>& rows) {
  KindSummary out;
  out.kind = kind;
  for (const Comparison* row : rows) {
    if (row->step->kind != kind) continue;
    const double error = StepError(*row);
    ++out.rows;
    out.mean += error;
    out.absolute += std::abs(error);
    if (std::abs(error) > std::abs(out.worst)) {
      out.worst = error;
      out.worst_row = row->setting;
    }
  }
  if (out.rows > 0) {
    out.mean /= out.rows;
    out.absolute /= out.rows;
  }
  return out;
}

OrderSummary OrderOf(const std::string& group,
                     const std::vector<const Comparison*>& rows) {
  OrderSummary out;
  out.group = group;
  out.rows = static_cast<int>(rows.size());
  int balance = 0;
  for (size_t first = 0; first < rows.size(); ++first) {
    for (size_t second = first + 1; second < rows.size(); ++second) {
      const double measured =
          NumberOf(rows[first]->published) - NumberOf(rows[second]->published);
      const double estimated = rows[first]->simulated - rows[second]->simulated;
      if (measured == 0) continue;
      ++out.pairs;
      // What the estimates cannot tell apart is not in order.
      if (estimated == 0) continue;
      balance += (measured > 0) == (estimated > 0) ? 1 : -1;
    }
  }
  if (out.pairs > 0) out.tau = static_cast<double>(balance) / out.pairs;
  return out;
}

double Score(double low, double high, double measured) {
  const double outside = std::max({0.0, low - measured, measured - high});
  return (high - low + kOutsideWeight * outside) / measured;
}

double ConstantScore(const std::vector<const Comparison*>& rows, double part) {
  double sum = 0;
  for (const Comparison* row : rows) {
    sum += Score(row->simulated * (1 - part), row->simulated * (1 + part),
                 NumberOf(row->published));
  }
  return sum / static_cast<double>(rows.size());
}

IntervalSummary IntervalOf(std::vector<const Comparison*> rows) {
  IntervalSummary out;
  rows.erase(std::remove_if(
                 rows.begin(), rows.end(),
                 [](const Comparison* row) { return row->step->high <= 0; }),
             rows.end());
  out.rows = static_cast<int>(rows.size());
  if (rows.empty()) return out;
  for (const Comparison* row : rows) {
    const double measured = NumberOf(row->published);
    const StepFacts& facts = *row->step;
    out.inside += measured >= facts.low && measured <= facts.high;
    out.half_width += (facts.high - facts.low) / 2 / row->simulated / out.rows;
    out.score += Score(facts.low, facts.high, measured) / out.rows;
  }
  out.constant_score = std::numeric_limits<double>::infinity();
  for (double part = kBandStep; part < kWidestBand; part += kBandStep) {
    const double score = ConstantScore(rows, part);
    if (score >= out.constant_score) continue;
    out.constant_score = score;
    out.constant = part;
  }
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
    row.Set(kStrategy, strategy);
  }
  for (const char* beside : {"/models", "/recipes"}) {
    JoinTable(absl::StrCat(folder, beside), &rows);
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
  std::map<std::string, Comparison> estimates;
  RunContext context;
  for (const TableRow& row : ReadSteps(folder)) {
    const auto [estimate, is_new] = estimates.try_emplace(row.Text(kStrategy));
    if (is_new) {
      Comparison& first = estimate->second;
      first.rounded = "-";
      first.step.emplace();
      const absl::Status status = Estimate(row, engine, &context, &first);
      first.step->refused = std::string(status.message());
    }
    out.push_back(estimate->second);
    Describe(row, &out.back());
  }
  return out;
}

const std::vector<StepGoal>& StepGoals() {
  static const auto* goals = new std::vector<StepGoal>{
      {"dense, H100 and H200", 0.06, 0.15},
      {"dense, B200", 0.08, 0.20},
      {"dense, GB200, GB300 and B300", 0.12, 0},
      {"dense, nvfp4", 0.15, 0},
      {"dense, long, PyTorch", 0.12, 0},
      {"experts, Hopper", 0.20, 0.40},
      {"experts, Blackwell", 0.20, 0.40},
  };
  return *goals;
}

double StepError(const Comparison& row) {
  return row.simulated / NumberOf(row.published) - 1;
}

StepSummary SummarizeSteps(const std::vector<Comparison>& rows) {
  StepSummary out;
  std::vector<const Comparison*> counted;
  std::vector<const Comparison*> dropped;
  std::map<std::string, std::vector<const Comparison*>> groups;
  for (const Comparison& row : rows) {
    if (!row.step) continue;
    if (!row.step->excluded.empty()) {
      ++out.excluded;
      if (row.has_estimate() && row.step->high > 0) {
        ++out.excluded_rows;
        out.excluded_inside += HalfWidthsAway(row) <= 1 ? 1 : 0;
      }
      if (row.step->excluded == kTokensDropped && row.has_estimate()) {
        dropped.push_back(&row);
      }
    } else if (!row.step->refused.empty()) {
      ++out.refused;
    } else {
      counted.push_back(&row);
      groups[row.step->group].push_back(&row);
      out.do_not_fit += row.step->fits ? 0 : 1;
    }
  }
  out.counted = static_cast<int>(counted.size());
  for (const StepGoal& goal : StepGoals()) {
    out.kinds.push_back(SummaryOf(goal.kind, counted));
  }
  for (const auto& [group, members] : groups) {
    if (members.size() < 2) continue;
    (members.size() < 5 ? out.small_orders : out.orders)
        .push_back(OrderOf(group, members));
  }
  out.interval = IntervalOf(counted);
  std::vector<std::string> kinds;
  for (const KindSummary& kind : out.kinds) kinds.push_back(kind.kind);
  out.left_out = SummarizeLeftOut(counted, kinds);
  out.dropped = static_cast<int>(dropped.size());
  if (!dropped.empty()) {
    counted.insert(counted.end(), dropped.begin(), dropped.end());
    for (const KindSummary& kind : out.kinds) {
      KindSummary all = SummaryOf(kind.kind, counted);
      if (all.rows > kind.rows) out.kinds_with_dropped.push_back(all);
    }
    out.interval_with_dropped = IntervalOf(std::move(counted));
  }
  return out;
}

}  // namespace pipewright
