// ODC, arXiv 2601.19362: trends of the paper's section 5 on A100, and the table
// of AMD's port to MI300X.
//
// Two numbers of the port are inferred from batch 16 of the model that has one
// node: how fast the GPU computes, from the seconds of a collective step, and
// how fast one-sided transfers are inside a node, from the speed-up. One more
// from batch 16 of the model on two nodes: how fast they are over its cards.
// RCCL's collectives run at the links' own rates. The port pushes about 5 % of
// its gradients while it computes, so here a layer's backward waits for the
// push before it.
#include "sim/analysis/reproduce/odc.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/analysis/reproduce/table.h"
#include "sim/base/parallel.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_draws.h"
#include "sim/engine/known_times.h"
#include "sim/model/lengths.h"
#include "sim/program/program.h"
#include "sim/run/monte_carlo.h"
#include "sim/schedule/registry.h"

namespace pipewright::odc {
namespace {

using Rule = Comparison::Rule;

// Draws of a setting; all strategies of it meet the same ones.
constexpr int kDraws = 100;
// Thousands of tokens of the law's longest sample.
constexpr double kLongest = 64;
// Below this a speed-up is none: the owner's polls cost as much.
constexpr double kAlike = 0.02;
// Noise of 100 draws, which a step of a trend that rises may fall by.
constexpr double kNoise = 0.01;

constexpr int kFitted = 16;        // the batch
constexpr double kFastest = 1e13;  // bytes a second, that a search tries
constexpr int kWrongSigns = 1;     // at most, of the predicted columns

// Rows of odc/strategies.
constexpr char kCollectives[] = "collectives";
constexpr char kOdc[] = "odc lb-mini";

// Draws come by the hundred, so the engine is fast whatever is asked for.
absl::StatusOr<RunConfig> OdcConfig(TableRow row, const std::string& strategy) {
  row.Set("strategy", strategy);
  std::vector<TableRow> rows = {row};
  JoinTable("odc/models", &rows);
  JoinTable("odc/strategies", &rows);
  rows[0].Take(ReadTable("odc/columns")[0]);
  return ConfigOf(rows[0], "fast");
}

// The law with lengths times `scale`.
std::string ScaledLaw(const std::string& name, double scale) {
  if (scale == 1) return name;
  const LengthLaw law = *ParseLengthLaw(name);
  return absl::StrFormat("lognormal:%.0f,%g,%.0f,%.0f", law.median * scale,
                         law.sigma, static_cast<double>(law.least) * scale,
                         static_cast<double>(law.most) * scale);
}

// Speed-up of a strategy over collectives with LB-Micro.
absl::StatusOr<double> GainOf(const TableRow& row, const std::string& strategy,
                              RunContext* context) {
  std::vector<NamedConfig> strategies;
  for (const std::string& name : {std::string(kCollectives), strategy}) {
    PW_ASSIGN_OR_RETURN(RunConfig config, OdcConfig(row, name));
    SequenceChoice& sequences = config.sequences;
    const double longest = row.Number("longest");
    sequences.lengths = ScaledLaw(*sequences.lengths, longest / kLongest);
    sequences.max_token_len =
        static_cast<int64_t>(1024 * longest * row.Number("packing"));
    strategies.push_back({"", std::move(config)});
  }
  PW_ASSIGN_OR_RETURN(
      const MonteCarlo result,
      RunMonteCarlo(std::move(strategies), kDraws, NumCores(), context));
  return result.strategies[0].mean_s / result.strategies[1].mean_s;
}

absl::Status AddGolden(RunContext* context, std::vector<Comparison>* rows) {
  for (const TableRow& row : ReadTable("odc/golden")) {
    PW_ASSIGN_OR_RETURN(const double gain,
                        GainOf(row, row.Fill("odc {packer}"), context));
    rows->push_back(CompareNumbers(row.Fill("A100 {model} minibatch 4"),
                                   row.Fill("speed-up, {packer}"),
                                   row.Number("speedup"), gain, 2));
  }
  return absl::OkStatus();
}

using Curve = std::vector<double>;

bool Rises(const Curve& curve) {
  bool rises = curve.back() > curve.front();
  for (size_t index = 1; index < curve.size(); ++index) {
    rises &= curve[index] > curve[index - 1] - kNoise;
  }
  return rises;
}

bool PeaksInside(const Curve& curve) {
  const auto peak = std::max_element(curve.begin(), curve.end());
  return peak != curve.begin() && peak != curve.end() - 1;
}

// What the paper states of a curve, and whether it holds.
std::vector<std::pair<const char*, bool>> Statements(const std::string& name,
                                                     const Curve& curve) {
  if (name == "minibatch") {
    return {{"minibatch 1: no gain", curve[0] < 1 + kAlike},
            {"peak at a moderate minibatch", PeaksInside(curve)}};
  }
  if (name == "devices") {
    return {{"more with more devices, one node",
             Rises({curve[0], curve[1], curve[2]})},
            {"more with more devices, 2 to 32", curve.back() > curve.front()}};
  }
  if (name == "longest") {
    return {{"more with longer samples", Rises(curve)}};
  }
  return {{"less with a larger packing ratio",
           Rises(Curve(curve.rbegin(), curve.rend()))}};
}

absl::Status AddTrends(RunContext* context, std::vector<Comparison>* rows) {
  Curve curve;
  const std::vector<TableRow> table = ReadTable("odc/trends");
  for (size_t index = 0; index < table.size(); ++index) {
    const TableRow& row = table[index];
    PW_ASSIGN_OR_RETURN(const double gain, GainOf(row, kOdc, context));
    rows->push_back(CompareNumbers(row.Fill("A100 {model} {curve} {value}"),
                                   "speed-up, lb-mini", 1, gain, 2,
                                   Rule::kShown, 0, false));
    curve.push_back(gain);
    const std::string& name = row.Text("curve");
    if (index + 1 < table.size() && table[index + 1].Text("curve") == name) {
      continue;
    }
    for (const auto& [statement, holds] : Statements(name, curve)) {
      rows->push_back(CompareNumbers("A100 1.5B, LB-Mini", statement, 1, holds,
                                     0, Rule::kDigits));
    }
    curve.clear();
  }
  return absl::OkStatus();
}

// What is inferred.
struct PortMachine {
  double flops_per_s = 1e14;
  double links_bytes_per_s = kFastest;  // of one-sided transfers in a node
  double cards_bytes_per_s = 0;         // and between nodes
};

absl::StatusOr<PreparedRun> PreparePort(const TableRow& row,
                                        const std::string& strategy,
                                        const PortMachine& machine,
                                        RunContext* context) {
  PW_ASSIGN_OR_RETURN(RunConfig config, OdcConfig(row, strategy));
  config.iterations = 1;
  if (strategy == kOdc) {
    config.system.nvlink.bytes_per_s = machine.links_bytes_per_s;
    if (machine.cards_bytes_per_s > 0) {
      config.system.nic.bytes_per_s = machine.cards_bytes_per_s;
    }
  }
  PW_ASSIGN_OR_RETURN(PreparedRun run, Prepare(config, context));
  // The same FLOP/s for every length.
  const PassWorks& works = run.sequences->works;
  const auto seconds = [&](const PassWork& work) {
    return work.At(run.sequences->base_sequence) / machine.flops_per_s;
  };
  run.lower.costs =
      PassCosts::Uniform(1, 1,
                         {.forward_s = seconds(works.forward),
                          .backward_input_s = seconds(works.backward_input),
                          .backward_weight_s = seconds(works.backward_weight)});
  return run;
}

// Empty microbatches behind the own ones, so that all have equally many.
absl::Status Pad(DrawPlan* plan, PreparedSequences* sequences) {
  const size_t most = sequences->classes.front().forward.size();
  const auto build = [&]() -> absl::StatusOr<std::shared_ptr<const Schedule>> {
    ScheduleParams sizes;
    sizes.pp = 1;
    sizes.microbatches = static_cast<int>(most);
    PW_ASSIGN_OR_RETURN(Schedule schedule, BuildSchedule("1f1b", sizes));
    return std::make_shared<const Schedule>(std::move(schedule));
  };
  PW_ASSIGN_OR_RETURN(const std::shared_ptr<const Schedule> schedule,
                      plan->ScheduleOf(static_cast<int>(most), build));
  for (MicrobatchFactors& own : sequences->classes) {
    for (std::vector<double>* const factors :
         {&own.forward, &own.backward_input, &own.backward_weight}) {
      factors->resize(most, 0);
    }
  }
  sequences->schedules.assign(sequences->classes.size(), schedule);
  return absl::OkStatus();
}

// A layer's backward waits for the push of the layer before it, not of the one
// before that.
void ExposePushes(Program* program) {
  const auto expose = [](DpClass* own) {
    for (RankProgram& rank : own->ranks) {
      for (LaneHook& hook : rank.hooks) {
        const bool reduces = hook.place == LaneHook::Place::kAfter;
        if (reduces && hook.window > 0) hook.window = 1;
      }
    }
  };
  expose(program);
  for (DpClass& other : program->more_classes) expose(&other);
}

// How a step of the port runs: with collectives, one-sided transfers, or those
// with the empty microbatches that collectives need.
enum class PortStep { kCollective, kPadded, kOneSided };

// Seconds, the mean over draws.
absl::StatusOr<double> StepOf(const TableRow& row, PortStep step,
                              const PortMachine& machine, RunContext* context) {
  PW_ASSIGN_OR_RETURN(const PreparedRun packed,
                      PreparePort(row, kOdc, machine, context));
  PreparedRun run = packed;
  if (step == PortStep::kCollective) {
    PW_ASSIGN_OR_RETURN(run, PreparePort(row, kCollectives, machine, context));
  }
  DrawPlan packings;
  DrawPlan plan;
  KnownTimes times;
  std::vector<double> seconds(kDraws);
  const auto work = [&](int64_t draw) {
    PreparedRun drawn = packed;
    PW_RETURN_IF_ERROR(TakeDraw(draw, &drawn, &packings));
    PreparedRun own = run;
    own.sequences = std::move(drawn.sequences);
    if (step != PortStep::kOneSided) {
      PW_RETURN_IF_ERROR(Pad(&plan, &*own.sequences));
    }
    PW_ASSIGN_OR_RETURN(Program program, LowerRun(own, &plan));
    if (step != PortStep::kCollective) ExposePushes(&program);
    PW_ASSIGN_OR_RETURN(const RunSummary summary,
                        RunFastKnowing(program, {}, &times));
    seconds[draw] = summary.iteration_s();
    return absl::OkStatus();
  };
  PW_RETURN_IF_ERROR(ParallelFor(kDraws, NumCores(), work));
  double sum = 0;
  for (const double each : seconds) sum += each;
  return sum / kDraws;
}

// Puts into `*number`, of links or of cards of `machine`, what gives the
// published speed-up. True: nothing in the range does; it is the nearer bound.
absl::StatusOr<bool> InferTransfers(const TableRow& row, double least,
                                    double* number, const PortMachine& machine,
                                    RunContext* context) {
  PW_ASSIGN_OR_RETURN(const double collective_s,
                      StepOf(row, PortStep::kCollective, machine, context));
  const auto speedup = [&](double value) -> absl::StatusOr<double> {
    *number = value;
    PW_ASSIGN_OR_RETURN(const double step_s,
                        StepOf(row, PortStep::kOneSided, machine, context));
    return collective_s / step_s;
  };
  PW_ASSIGN_OR_RETURN(
      const BoundedFit fit,
      FitWithin(least, kFastest, row.Number("speedup"), speedup));
  *number = fit.at;
  return fit.at_bound;
}

// The same for the computing of `machine` and a collective step.
absl::StatusOr<bool> InferCompute(const TableRow& row, PortMachine* machine,
                                  RunContext* context) {
  const auto slowness = [&](double value) -> absl::StatusOr<double> {
    machine->flops_per_s = value;
    PW_ASSIGN_OR_RETURN(const double step_s,
                        StepOf(row, PortStep::kCollective, *machine, context));
    return -step_s;
  };
  PW_ASSIGN_OR_RETURN(
      const BoundedFit fit,
      FitWithin(1e13, 1e16, -row.Number("collective"), slowness));
  machine->flops_per_s = fit.at;
  return fit.at_bound;
}

// From the rows that are fitted; `shown` gets what is found.
absl::StatusOr<PortMachine> InferMachine(const std::vector<TableRow>& table,
                                         RunContext* context,
                                         std::vector<Comparison>* shown) {
  PortMachine machine;
  const auto show = [&](const std::string& what, bool at_bound, double most,
                        double found, int digits) {
    shown->push_back(CompareNumbers(
        "MI300X, fitted",
        absl::StrCat(what, at_bound ? ", at the bound of the fit" : ""), most,
        found, digits, Rule::kShown, 0, false));
  };
  for (const TableRow& row : table) {
    if (row.Integer("batch") != kFitted) continue;
    if (row.Integer("system.nodes") == 1) {
      PW_ASSIGN_OR_RETURN(const bool compute,
                          InferCompute(row, &machine, context));
      show("TFLOP/s, of 1307 at most", compute, 1307,
           machine.flops_per_s / 1e12, 0);
      PW_ASSIGN_OR_RETURN(const bool links,
                          InferTransfers(row, 1e9, &machine.links_bytes_per_s,
                                         machine, context));
      show("GB/s one-sided, links of 448", links, 448,
           machine.links_bytes_per_s / 1e9, 1);
    } else {
      PW_ASSIGN_OR_RETURN(const bool cards,
                          InferTransfers(row, 1e8, &machine.cards_bytes_per_s,
                                         machine, context));
      show("GB/s one-sided, cards of 50", cards, 50,
           machine.cards_bytes_per_s / 1e9, 1);
    }
  }
  return machine;
}

// Adds the comparisons of a row. True: it is predicted, and the wrong side of a
// speed-up of 1.
absl::StatusOr<bool> Predict(const TableRow& row, const PortMachine& machine,
                             RunContext* context,
                             std::vector<Comparison>* rows) {
  const auto step = [&](PortStep kind) {
    return StepOf(row, kind, machine, context);
  };
  PW_ASSIGN_OR_RETURN(const double collective_s, step(PortStep::kCollective));
  PW_ASSIGN_OR_RETURN(const double padded_s, step(PortStep::kPadded));
  PW_ASSIGN_OR_RETURN(const double odc_s, step(PortStep::kOneSided));
  const bool fitted = row.Integer("batch") == kFitted;
  const auto show = [&](const char* what, const char* column, double found,
                        int digits) {
    if (!row.Has(column)) return;
    rows->push_back(
        CompareNumbers(absl::StrCat(row.Fill("MI300X {model} batch {batch}"),
                                    fitted ? ", fitted" : ""),
                       what, row.Number(column), found, digits));
  };
  const double speedup = collective_s / odc_s;
  show("speed-up", "speedup", speedup, 3);
  show("of it one-sided transfers", "one_sided", collective_s / padded_s, 3);
  show("of it no padding", "no_padding", padded_s / odc_s, 3);
  show("s a step, collectives", "collective", collective_s, 1);
  show("s a step, odc", "odc", odc_s, 1);
  return !fitted && (row.Number("speedup") > 1) != (speedup > 1);
}

absl::Status AddPort(std::vector<Comparison>* rows) {
  std::vector<TableRow> table = ReadTable("odc/port");
  JoinTable("odc/steps", &table);
  RunContext context;
  std::vector<Comparison> inferred;
  PW_ASSIGN_OR_RETURN(const PortMachine machine,
                      InferMachine(table, &context, &inferred));
  int wrong = 0;
  for (const TableRow& row : table) {
    PW_ASSIGN_OR_RETURN(const bool is_wrong,
                        Predict(row, machine, &context, rows));
    wrong += is_wrong ? 1 : 0;
  }
  rows->insert(rows->end(), inferred.begin(), inferred.end());
  rows->push_back(CompareNumbers("MI300X, 7 predicted columns",
                                 "wrong signs of speed-up - 1", kWrongSigns,
                                 wrong, 0, Rule::kAtMost, 0, false));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<BoundedFit> FitWithin(
    double low, double high, double target,
    const std::function<absl::StatusOr<double>(double)>& value) {
  const double first = low;
  const double last = high;
  while (high / low > 1 + 1e-4) {
    const double middle = std::sqrt(low * high);
    PW_ASSIGN_OR_RETURN(const double here, value(middle));
    (here < target ? low : high) = middle;
  }
  // An end that never moved was never passed.
  if (low != first && high != last) return BoundedFit{std::sqrt(low * high)};
  return BoundedFit{low == first ? first : last, true};
}

absl::StatusOr<std::vector<Comparison>> Reproduce(const std::string&) {
  std::vector<Comparison> rows;
  RunContext context;
  PW_RETURN_IF_ERROR(AddGolden(&context, &rows));
  PW_RETURN_IF_ERROR(AddTrends(&context, &rows));
  PW_RETURN_IF_ERROR(AddPort(&rows));
  return rows;
}

}  // namespace pipewright::odc
