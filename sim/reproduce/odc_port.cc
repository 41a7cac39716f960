// AMD's port of ODC to MI300X. Two numbers are inferred from batch 16 of the
// model that has one node: how fast the GPU computes, from the seconds of a
// collective step, and how fast one-sided transfers are inside a node, from the
// speed-up. One more from batch 16 of the model on two nodes: how fast they are
// over its cards. RCCL's collectives run at the links' own rates.
//
// The port pushes about 5 % of its gradients while it computes, so here a
// layer's backward waits for the push before it.
#include <cmath>
#include <functional>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
#include "sim/base/parallel.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_draws.h"
#include "sim/engine/known_times.h"
#include "sim/program/program.h"
#include "sim/reproduce/odc.h"
#include "sim/reproduce/table.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr int kFitted = 16;        // the batch
constexpr double kFastest = 1e13;  // bytes a second, that a search tries
constexpr int kWrongSigns = 1;     // at most, of the predicted columns

// What is inferred.
struct PortMachine {
  double flops_per_s = 1e14;
  double links_bytes_per_s = 0;  // of one-sided transfers in a node
  double cards_bytes_per_s = 0;  // and between nodes
};

enum class PortStrategy { kCollective, kPadded, kOneSided };

struct PortSetting {
  std::string model;
  int devices = 8;
  int batch = kFitted;
};

absl::StatusOr<PreparedRun> PreparePort(const PortSetting& setting,
                                        bool one_sided,
                                        const PortMachine& machine,
                                        RunContext* context) {
  RunConfig config = OdcConfig(setting.model, "mi300x-node", setting.devices,
                               setting.batch / setting.devices);
  // Scaled below: the same FLOP/s for every length.
  config.costs.forward_s = 1;
  config.costs.backward_input_s = 1;
  config.costs.backward_weight_s = 1;
  config.iterations = 1;
  StrategyChoice& strategy = config.strategy;
  strategy.data_parallel = one_sided ? DataParallel::kOdc : DataParallel::kFsdp;
  config.sequences.packer = one_sided ? Packer::kLbMini : Packer::kLbMicro;
  if (one_sided) {
    config.system.nvlink.bytes_per_s = machine.links_bytes_per_s;
    if (machine.cards_bytes_per_s > 0) {
      config.system.nic.bytes_per_s = machine.cards_bytes_per_s;
    }
  } else {
    strategy.shard_blocks = ShardBlocks::kLayer;
  }
  PW_ASSIGN_OR_RETURN(PreparedRun run, Prepare(config, context));
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

// Of a step, the mean over draws.
absl::StatusOr<double> StepSeconds(const PortSetting& setting,
                                   PortStrategy strategy,
                                   const PortMachine& machine,
                                   RunContext* context) {
  PW_ASSIGN_OR_RETURN(const PreparedRun packed,
                      PreparePort(setting, true, machine, context));
  PreparedRun run = packed;
  if (strategy == PortStrategy::kCollective) {
    PW_ASSIGN_OR_RETURN(run, PreparePort(setting, false, machine, context));
  }
  DrawPlan packings;
  DrawPlan plan;
  KnownTimes times;
  std::vector<double> seconds(kOdcDraws);
  const auto work = [&](int64_t draw) {
    PreparedRun drawn = packed;
    PW_RETURN_IF_ERROR(TakeDraw(draw, &drawn, &packings));
    PreparedRun own = run;
    own.sequences = std::move(drawn.sequences);
    if (strategy != PortStrategy::kOneSided) {
      PW_RETURN_IF_ERROR(Pad(&plan, &*own.sequences));
    }
    PW_ASSIGN_OR_RETURN(Program program, LowerRun(own, &plan));
    if (strategy != PortStrategy::kCollective) ExposePushes(&program);
    PW_ASSIGN_OR_RETURN(const RunSummary summary,
                        RunFastKnowing(program, {}, &times));
    seconds[draw] = summary.iteration_s();
    return absl::OkStatus();
  };
  PW_RETURN_IF_ERROR(ParallelFor(kOdcDraws, NumCores(), work));
  double sum = 0;
  for (const double each : seconds) sum += each;
  return sum / kOdcDraws;
}

// Rows of the port as they are computed.
class PortRows {
 public:
  absl::Status Run();
  std::vector<Comparison> Take() && { return std::move(rows_); }

 private:
  absl::StatusOr<double> Step(const PortSetting& setting,
                              PortStrategy strategy) {
    return StepSeconds(setting, strategy, machine_, &context_);
  }
  absl::Status InferFromOneNode(const PortSetting& setting, double speedup);
  absl::Status InferFromTwoNodes(const PortSetting& setting, double speedup);
  void Show(std::string setting, std::string what, double published,
            double simulated, int digits, bool in_paper = true) {
    rows_.push_back({.setting = std::move(setting),
                     .schedule = std::move(what),
                     .published = absl::StrFormat("%.*f", digits, published),
                     .simulated = simulated,
                     .rounded = absl::StrFormat("%.*f", digits, simulated),
                     .rule = Comparison::Rule::kShown,
                     .in_paper = in_paper});
  }

  static absl::Status Infer(
      double low, double high, double target,
      const std::function<absl::StatusOr<double>(double)>& value, double* found,
      bool* at_bound) {
    PW_ASSIGN_OR_RETURN(const BoundedFit fit,
                        FitWithin(low, high, target, value));
    *found = fit.at;
    *at_bound = fit.at_bound;
    return absl::OkStatus();
  }
  // Of a value that was inferred: nothing between the bounds met the table.
  static std::string Inferred(const char* what, bool at_bound) {
    return absl::StrCat(what, at_bound ? ", at the bound of the fit" : "");
  }

  // Which of the inferred values are ends of the range that was searched.
  struct Ends {
    bool compute = false;
    bool links = false;
    bool cards = false;
  };

  RunContext context_;
  PortMachine machine_;
  Ends ends_;
  std::vector<Comparison> rows_;
};

absl::Status PortRows::InferFromOneNode(const PortSetting& setting,
                                        double speedup) {
  double target_s = 0;
  for (const TableRow& row : ReadTable("odc/steps")) {
    if (row.Text("model") == setting.model &&
        row.Integer("batch") == setting.batch) {
      target_s = row.Number("collective");
    }
  }
  PW_CHECK(target_s > 0);
  machine_.links_bytes_per_s = kFastest;
  const auto slowness = [&](double value) -> absl::StatusOr<double> {
    machine_.flops_per_s = value;
    PW_ASSIGN_OR_RETURN(const double step_s,
                        Step(setting, PortStrategy::kCollective));
    return -step_s;
  };
  PW_RETURN_IF_ERROR(Infer(1e13, 1e16, -target_s, slowness,
                           &machine_.flops_per_s, &ends_.compute));
  PW_ASSIGN_OR_RETURN(const double collective_s,
                      Step(setting, PortStrategy::kCollective));
  const auto gain = [&](double value) -> absl::StatusOr<double> {
    machine_.links_bytes_per_s = value;
    PW_ASSIGN_OR_RETURN(const double step_s,
                        Step(setting, PortStrategy::kOneSided));
    return collective_s / step_s;
  };
  return Infer(1e9, kFastest, speedup, gain, &machine_.links_bytes_per_s,
               &ends_.links);
}

absl::Status PortRows::InferFromTwoNodes(const PortSetting& setting,
                                         double speedup) {
  PW_ASSIGN_OR_RETURN(const double collective_s,
                      Step(setting, PortStrategy::kCollective));
  const auto gain = [&](double value) -> absl::StatusOr<double> {
    machine_.cards_bytes_per_s = value;
    PW_ASSIGN_OR_RETURN(const double step_s,
                        Step(setting, PortStrategy::kOneSided));
    return collective_s / step_s;
  };
  return Infer(1e8, kFastest, speedup, gain, &machine_.cards_bytes_per_s,
               &ends_.cards);
}

absl::Status PortRows::Run() {
  const std::vector<TableRow> table = ReadTable("odc/port");
  const auto setting_of = [](const TableRow& row) {
    return PortSetting{.model = row.Text("model"),
                       .devices = row.Integer("gpus"),
                       .batch = row.Integer("batch")};
  };
  for (const TableRow& row : table) {
    if (row.Integer("batch") != kFitted) continue;
    PW_RETURN_IF_ERROR(
        (row.Integer("gpus") == 8)
            ? InferFromOneNode(setting_of(row), row.Number("speedup"))
            : InferFromTwoNodes(setting_of(row), row.Number("speedup")));
  }
  int wrong = 0;
  for (const TableRow& row : table) {
    const PortSetting setting = setting_of(row);
    PW_ASSIGN_OR_RETURN(const double collective_s,
                        Step(setting, PortStrategy::kCollective));
    PW_ASSIGN_OR_RETURN(const double padded_s,
                        Step(setting, PortStrategy::kPadded));
    PW_ASSIGN_OR_RETURN(const double odc_s,
                        Step(setting, PortStrategy::kOneSided));
    const double published = row.Number("speedup");
    const double simulated = collective_s / odc_s;
    const bool fitted = setting.batch == kFitted;
    const std::string name =
        absl::StrCat("MI300X ", setting.model, " batch ", setting.batch,
                     fitted ? ", fitted" : "");
    Show(name, "speed-up", published, simulated, 3);
    if (!fitted && (published > 1) != (simulated > 1)) ++wrong;
    if (fitted && setting.devices == 8) {
      Show(name, "of it one-sided transfers", 1.098, collective_s / padded_s,
           3);
      Show(name, "of it no padding", 1.102, padded_s / odc_s, 3);
    }
    for (const TableRow& step : ReadTable("odc/steps")) {
      if (step.Text("model") != setting.model ||
          step.Integer("batch") != setting.batch) {
        continue;
      }
      Show(name, "s a step, collectives", step.Number("collective"),
           collective_s, 1);
      Show(name, "s a step, odc", step.Number("odc"), odc_s, 1);
    }
  }
  Show("MI300X, fitted", Inferred("TFLOP/s, of 1307 at most", ends_.compute),
       1307, machine_.flops_per_s / 1e12, 0, false);
  Show("MI300X, fitted", Inferred("GB/s one-sided, links of 448", ends_.links),
       448, machine_.links_bytes_per_s / 1e9, 1, false);
  Show("MI300X, fitted", Inferred("GB/s one-sided, cards of 50", ends_.cards),
       50, machine_.cards_bytes_per_s / 1e9, 1, false);
  rows_.push_back({.setting = "MI300X, 7 predicted columns",
                   .schedule = "wrong signs of speed-up - 1",
                   .published = absl::StrCat(kWrongSigns),
                   .simulated = static_cast<double>(wrong),
                   .rounded = absl::StrCat(wrong),
                   .rule = Comparison::Rule::kAtMost,
                   .in_paper = false});
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

absl::StatusOr<std::vector<Comparison>> ReproduceOdcPort() {
  PortRows rows;
  PW_RETURN_IF_ERROR(rows.Run());
  return std::move(rows).Take();
}

}  // namespace pipewright
