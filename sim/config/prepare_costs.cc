#include <cmath>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare_parts.h"
#include "sim/cost/analytic.h"
#include "sim/cost/clock.h"
#include "sim/cost/contention.h"
#include "sim/cost/exchange.h"
#include "sim/cost/host_time.h"
#include "sim/cost/silicon.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

// One of F, B, W with the two forms that it may be given in.
struct TimeOf {
  const char* name;
  const std::optional<double>& uniform;
  const std::vector<double>& per_stage;
  double StageCosts::*member;

  bool given() const { return uniform.has_value() || !per_stage.empty(); }
};

std::vector<TimeOf> PassTimes(const CostChoice& costs) {
  return {{"forward", costs.forward_s, costs.stage_forward_s,
           &StageCosts::forward_s},
          {"backward_input", costs.backward_input_s,
           costs.stage_backward_input_s, &StageCosts::backward_input_s},
          {"backward_weight", costs.backward_weight_s,
           costs.stage_backward_weight_s, &StageCosts::backward_weight_s}};
}

absl::Status FillTime(const RunConfig& config, const TimeOf& time,
                      const RunSizes& sizes, std::vector<StageCosts>* stages) {
  const std::string uniform = absl::StrCat("costs.uniform.", time.name);
  const std::string per_stage = absl::StrCat("costs.per_stage.", time.name);
  if (time.uniform.has_value() && !time.per_stage.empty()) {
    return BothGiven(config.Field(per_stage), config.Field(uniform));
  }
  if (time.per_stage.empty()) {
    for (StageCosts& stage : *stages) {
      stage.*time.member = *time.uniform / sizes.vpp;
    }
    return absl::OkStatus();
  }
  if (time.per_stage.size() != stages->size()) {
    return BadValue(config.Field(per_stage),
                    absl::StrCat("a list of ", time.per_stage.size()),
                    absl::StrCat("one time a stage, pp * vpp = ", sizes.pp,
                                 " * ", sizes.vpp, " = ", stages->size()));
  }
  for (size_t stage = 0; stage < stages->size(); ++stage) {
    (*stages)[stage].*time.member = time.per_stage[stage];
  }
  return absl::OkStatus();
}

constexpr char kAllTimes[] =
    "all of forward, backward_input, backward_weight (a full backward is their "
    "sum), or forward and backward (half of it is taken for each), or none of "
    "them";

absl::Status CheckAllGiven(const RunConfig& config) {
  std::vector<std::string> missing;
  for (const TimeOf& time : PassTimes(config.costs)) {
    if (!time.given())
      missing.push_back(absl::StrCat("costs.uniform.", time.name));
  }
  if (missing.empty()) return absl::OkStatus();
  return Prefix(config.Field(absl::StrJoin(missing, ", ")),
                WithValue(absl::InvalidArgumentError(absl::StrCat(
                              "missing, while other pass times are given; "
                              "allowed: ",
                              kAllTimes)),
                          "", kAllTimes));
}

absl::Status NeededForEstimate(const RunConfig& config,
                               absl::string_view what) {
  return FieldError(config.Field("costs.analytic"),
                    absl::StrCat("needs ", what));
}

}  // namespace

bool GivesPassTimes(const RunConfig& config) {
  for (const TimeOf& time : PassTimes(config.costs)) {
    if (time.given()) return true;
  }
  return false;
}

AnalyticNetwork NetworkOf(const ShapeParams& shape) {
  const int nics =
      shape.nics_per_node > 0 ? shape.nics_per_node : shape.devices_per_node;
  const bool over_pcie = shape.devices_per_node > 1 && !shape.has_nvlink();
  return {
      .devices_per_node = shape.devices_per_node,
      .nvlink_bytes_per_s = over_pcie
                                ? shape.pcie.bytes_per_s / shape.pcie_per_switch
                                : shape.nvlink.bytes_per_s,
      .nic_bytes_per_s = shape.nic.bytes_per_s * nics / shape.devices_per_node,
      .has_nvlink = !over_pcie};
}

namespace {

// The tables of measured rates that costs.analytic.silicon stands for; null for
// none. Error: a file that cannot be read; "shipped" where none ship.
absl::StatusOr<std::shared_ptr<const Silicon>> SiliconOf(
    const RunConfig& config, const DeviceSpec& device, RunContext* context) {
  const std::string choice = config.costs.analytic_silicon.value_or("auto");
  const auto field = config.Field("costs.analytic.silicon");
  std::shared_ptr<const Silicon> none;
  if (choice == "none") return none;
  if (choice == "auto" || choice == "shipped") {
    const bool is_wanted = choice == "shipped" || device.silicon_by_default;
    if (device.silicon.empty() || !is_wanted) {
      if (choice == "auto") return none;
      return BadValue(
          field, choice,
          absl::StrCat("auto or none (no tables ship for ", device.name, ")"));
    }
    std::shared_ptr<const Silicon> shipped = Silicon::Shipped(device.silicon);
    if (shipped == nullptr) {
      return Prefix(field, UnknownName("device with tables", device.silicon,
                                       {"a100", "b200", "b300", "gb200",
                                        "gb300", "h100", "h200"}));
    }
    return shipped;
  }
  if (!IsSiliconFile(choice)) {
    return BadValue(field, choice,
                    "auto, shipped, none, or a file (with a '/' or a '.')");
  }
  absl::StatusOr<std::shared_ptr<const Silicon>> own =
      context->SiliconOf(choice, device);
  if (!own.ok()) return Prefix(field, own.status());
  return own;
}

// Device and links to estimate pass times for, or nothing where they are not
// estimated. `model` and `shape` may be null. Error: an estimate without a
// model, a known device or the links that it needs.
absl::StatusOr<std::optional<AnalyticOptions>> PrepareAnalytic(
    const RunConfig& config, const RunSizes& sizes, const PreparedModel* model,
    const ShapeParams* shape, RunContext* context) {
  if (!config.costs.analytic) return std::optional<AnalyticOptions>();
  for (const TimeOf& time : PassTimes(config.costs)) {
    if (!time.given()) continue;
    return BothGiven(
        config.Field("costs.analytic"),
        absl::StrCat("costs.", time.uniform ? "uniform." : "per_stage.",
                     time.name));
  }
  if (model == nullptr) {
    return NeededForEstimate(config, "a model (--model NAME)");
  }
  const std::string device = config.costs.analytic_device.value_or("auto");
  if (device == "auto" && shape == nullptr) {
    return NeededForEstimate(
        config, "a device (--analytic h100) or a system (--system NAME)");
  }
  const TrainingSpec& training = model->training;
  if (shape == nullptr && training.tp * training.cp * training.ep > 1) {
    return NeededForEstimate(
        config,
        "a system (--system NAME) for the links of strategy.tp, "
        "strategy.cp and strategy.ep");
  }
  AnalyticOptions options;
  const absl::StatusOr<DeviceSpec> spec =
      FindDevice(device == "auto" ? shape->device_name : device);
  PW_RETURN_IF_ERROR(
      device == "auto"
          ? Prefix(config.Field("system.device_name"),
                   Prefix(shape->device_name, spec.status()))
          : Prefix(config.Field("costs.analytic.device"), spec.status()));
  options.device = *spec;
  const bool is_fp4 = training.precision == Precision::kNvfp4;
  const double peak = is_fp4 ? spec->fp4_flops : spec->fp8_flops;
  if (IsNarrow(training.precision) && peak == 0) {
    return BadValue(
        config.Field("strategy.precision"),
        ChoiceName(PrecisionChoices(), training.precision),
        absl::StrCat("bf16", spec->fp8_flops > 0 ? " or fp8" : "", " (",
                     spec->name, " has no ", is_fp4 ? "fp4" : "fp8", ")"));
  }
  if (shape != nullptr) options.network = NetworkOf(*shape);
  PW_ASSIGN_OR_RETURN(options.silicon, SiliconOf(config, *spec, context));
  options.sustained = config.costs.analytic_clock != ClockRate::kBurst;
  options.kernels =
      config.costs.analytic_kernels.value_or(FrameworkKernels::kFused);
  if (config.costs.analytic_launch_s.value_or(0) > limits::kMostLaunchSeconds) {
    return BadValue(config.Field("costs.analytic.launch_time"),
                    FormatSeconds(*config.costs.analytic_launch_s),
                    absl::StrCat("0 to ", limits::kMostLaunchSeconds, " s"));
  }
  // What was measured of a process is of Megatron-LM's.
  const bool is_deepspeed = config.strategy.framework == Framework::kDeepSpeed;
  options.launch_s = config.costs.analytic_launch_s.value_or(LaunchSecondsOf(
      *spec, is_deepspeed ? FrameworkKernels::kEager : options.kernels));
  options.contention =
      config.costs.analytic_contention.value_or(ContentionOf(*spec));
  options.slowest_energy = EnergyOfSlowest(
      config.costs.analytic_speed_range.value_or(kSpeedRange), sizes.devices());
  options.most_slowest_energy =
      EnergyOfSlowest(kMostSpeedRange, sizes.devices());
  options.device.bf16_joules_per_flop *= options.slowest_energy;
  return std::optional<AnalyticOptions>(std::move(options));
}

std::optional<DeviceSpec> DeviceOf(
    const std::optional<AnalyticOptions>& analytic, const ShapeParams* shape) {
  if (analytic) return analytic->device;
  if (shape == nullptr) return {};
  const absl::StatusOr<DeviceSpec> device = FindDevice(shape->device_name);
  return device.ok() ? std::optional<DeviceSpec>(*device) : std::nullopt;
}

// Is a given time of the recomputation part of backward_input? With a model
// that recomputes and costs.uniform.recompute.
bool AddsRecompute(const RunConfig& config,
                   const std::optional<PreparedModel>& model) {
  return config.costs.recompute_s && model &&
         model->training.recompute != Recompute::kNone;
}

// R passes of `schedule` take estimated times off the backward that would
// otherwise run the forward again.
void TakeRecomputePasses(const Schedule& schedule, PassCosts* costs) {
  if (!schedule.Has(PassKind::kRecompute)) return;
  for (std::vector<StageCosts>* of : {&costs->stages, &costs->joules}) {
    for (StageCosts& stage : *of) {
      stage.backward_input_s -= stage.recompute_s;
      if (stage.backward_full_s > 0) stage.backward_full_s -= stage.recompute_s;
      // A schedule that runs the forward again says so itself.
      if (stage.recompute_s == 0) stage.recompute_s = stage.forward_s;
    }
  }
  for (StageExchanges& stage : costs->exchanges) {
    AddExchanges(stage.recompute, -1, &stage.backward_input);
    if (stage.recompute.empty()) stage.recompute = stage.forward;
  }
}

// Given, or `measured`, or estimated by `prices` (either or null).
absl::StatusOr<PassCosts> TimesOf(
    const RunConfig& config, const RunSizes& sizes, const PreparedModel* model,
    const BlockPrices* prices, const PassCosts* measured, RunContext* context,
    std::vector<std::string>* warnings) {
  const CostChoice& given = config.costs;
  PassCosts costs;
  costs.stages.resize(static_cast<size_t>(sizes.pp) * sizes.vpp);
  if (measured != nullptr) {
    costs = *measured;
  } else if (prices != nullptr) {
    costs = AnalyticCosts(*prices, model->layout, model->rank_of_stage);
  } else if (GivesPassTimes(config)) {
    PW_RETURN_IF_ERROR(CheckAllGiven(config));
    for (const TimeOf& time : PassTimes(given)) {
      PW_RETURN_IF_ERROR(FillTime(config, time, sizes, &costs.stages));
    }
  } else {
    costs = PassCosts::Uniform(
        sizes.pp, sizes.vpp,
        {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
    PW_RETURN_IF_ERROR(CheckTimed(config, context));
    if (InUnits(config) && !config.only_order) {
      warnings->push_back(
          "no pass times are given: forward, backward_input and "
          "backward_weight take 1 unit each");
    }
  }
  costs.microbatch_factor = given.microbatch_factor;
  const bool modelled = prices != nullptr || measured != nullptr;
  const bool recomputes =
      model != nullptr && model->training.recompute != Recompute::kNone;
  double work_s = 0;
  for (StageCosts& stage : costs.stages) {
    // A forward run again takes what the forward took, unless told otherwise.
    if (given.recompute_s) {
      const double estimated_s = modelled ? stage.recompute_s : 0;
      stage.recompute_s = *given.recompute_s / sizes.vpp;
      if (recomputes) {
        const double more_s = stage.recompute_s - estimated_s;
        stage.backward_input_s += more_s;
        if (stage.backward_full_s > 0) stage.backward_full_s += more_s;
      }
    } else if (!modelled) {
      stage.recompute_s = stage.forward_s;
    }
    stage.offload_s = given.offload_s.value_or(0) / sizes.vpp;
    stage.load_s = given.load_s.value_or(0) / sizes.vpp;
    work_s += stage.forward_s + stage.backward_input_s +
              stage.backward_weight_s + stage.recompute_s + stage.offload_s +
              stage.load_s;
  }
  if (work_s <= 0 || !std::isfinite(work_s * sizes.microbatches)) {
    return BadValue("costs", absl::StrCat(work_s, " s of work in all"),
                    "a finite sum above 0");
  }
  costs.optimizer_s = given.optimizer_s.value_or(costs.optimizer_s);
  costs.validation_s = given.validation_s.value_or(0);
  // Undoing AdamW reads and writes what the step does.
  costs.rollback_s = given.rollback_s.value_or(costs.optimizer_s);
  costs.prediction_s = given.prediction_s.value_or(costs.prediction_s);
  costs.held_until_weight =
      given.held_until_weight.value_or(costs.held_until_weight);
  costs.pair_factor = given.pair_factor.value_or(1);
  return costs;
}

}  // namespace

absl::StatusOr<PreparedCosts> PrepareCosts(
    const RunConfig& config, const RunSizes& sizes, const PreparedModel* model,
    const PreparedNetwork& network, std::optional<PreparedProfile> profile,
    std::vector<double> slice_factor, RunContext* context,
    std::vector<std::string>* warnings) {
  const ShapeParams* shape = network.system_shape();
  PreparedCosts costs;
  // Slow links lengthen exchanges of the groups that cross them (LowerRun).
  Network healthy = network.links;
  if (network.slow) healthy.cluster = network.slow->healthy;
  costs.profile = std::move(profile);
  if (costs.profile) {
    PW_RETURN_IF_ERROR(TakeProfileTimes(config, *model, shape, healthy,
                                        &*costs.profile, warnings));
  }
  PW_ASSIGN_OR_RETURN(costs.analytic,
                      PrepareAnalytic(config, sizes, model, shape, context));
  if (costs.analytic) {
    PlaceGroups(healthy, model->training, &costs.analytic->network);
    costs.prices = model->shared->Prices(*costs.analytic);
  }
  costs.device = DeviceOf(costs.analytic, shape);
  WarnOfDevice(config, network, costs, warnings);
  PW_ASSIGN_OR_RETURN(
      costs.passes,
      TimesOf(config, sizes, model, costs.prices.get(),
              costs.profile ? &costs.profile->costs.costs : nullptr, context,
              warnings));
  costs.passes.slice_factor = std::move(slice_factor);
  costs.in_units = InUnits(config);
  return costs;
}

absl::Status FitToSchedule(const RunConfig& config,
                           const std::optional<PreparedModel>& model,
                           const PreparedNetwork& network,
                           const Schedule& schedule, absl::string_view engine,
                           PreparedCosts* costs,
                           std::vector<std::string>* warnings) {
  PassCosts& passes = costs->passes;
  if (costs->follow_model() || AddsRecompute(config, model)) {
    TakeRecomputePasses(schedule, &passes);
  }
  if (costs->analytic && schedule.directions == 2 &&
      !config.costs.optimizer_s) {
    passes.optimizer_s =
        AnalyticOptimizerSeconds(*costs->prices, model->layout,
                                 model->rank_of_stage, schedule.directions);
    passes.rollback_s = config.costs.rollback_s.value_or(passes.optimizer_s);
  }
  return TakeProfileEffects(config, model ? &*model : nullptr, schedule, engine,
                            network.links.cluster != nullptr, costs, warnings);
}

PlanCosts PlanCostsOf(const RunConfig& config, const RunSizes& sizes,
                      const PassCosts& costs, double hop_s) {
  PlanCosts plan;
  plan.steps_together =
      OptimizerOf(config, Schedule()) == OptimizerMode::kSynchronised;
  plan.held_until_weight = costs.held_until_weight;
  plan.pair_factor = costs.pair_factor;
  plan.slice_factor = costs.slice_factor;
  plan.given =
      config.costs.analytic || config.costs.profile || GivesPassTimes(config);
  plan.backward_recomputes =
      config.strategy.recompute.value_or(Recompute::kNone) != Recompute::kNone;
  for (const StageCosts& stage : costs.stages) {
    // As TakeRecomputePasses.
    const bool estimated = config.costs.analytic || config.costs.profile;
    plan.recompute.push_back(estimated && stage.recompute_s == 0
                                 ? stage.forward_s
                                 : stage.recompute_s);
  }
  if (!plan.given) return plan;
  plan.hop = hop_s;
  if (config.costs.forward_s && config.costs.backward_input_s &&
      config.costs.backward_weight_s) {
    plan.forward = *config.costs.forward_s;
    plan.backward_input = *config.costs.backward_input_s;
    plan.backward_weight = *config.costs.backward_weight_s;
    return plan;
  }
  // Most planners know one time for all ranks: the mean.
  plan.forward = plan.backward_input = plan.backward_weight = 0;
  for (const StageCosts& stage : costs.stages) {
    plan.forward += stage.forward_s / sizes.pp;
    plan.backward_input += stage.backward_input_s / sizes.pp;
    plan.backward_weight += stage.backward_weight_s / sizes.pp;
    plan.stages.push_back({.forward = stage.forward_s,
                           .backward_input = stage.backward_input_s,
                           .backward_weight = stage.backward_weight_s});
  }
  if (std::equal(plan.stages.begin() + 1, plan.stages.end(),
                 plan.stages.begin())) {
    plan.stages.clear();
  }
  return plan;
}

}  // namespace pipewright
