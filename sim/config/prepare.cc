#include "sim/config/prepare.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/file.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/config/config_values.h"
#include "sim/config/idle_options.h"
#include "sim/config/prepare_parts.h"
#include "sim/cost/analytic.h"
#include "sim/engine/engine.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"

namespace pipewright {
namespace {

constexpr int64_t kMaxStages = int64_t{1} << 20;
// Eight bytes each, so 16 GiB.
constexpr int64_t kMaxPasses = int64_t{1} << 31;

absl::Status CheckNames(const RunConfig& config, const std::string& engine) {
  PW_RETURN_IF_ERROR(
      Prefix(config.Field("engine"), FindEngine(engine).status()));
  const std::string network = config.network.value_or("fluid");
  if (network != "fluid" && network != "native") {
    return Prefix(config.Field("network"),
                  UnknownName("network model", network, {"fluid", "native"}));
  }
  return absl::OkStatus();
}

// The sizes of a schedule that is built: the configuration's.
absl::StatusOr<RunSizes> SizesFromConfig(const RunConfig& config) {
  const StrategyChoice& strategy = config.strategy;
  if (!config.schedule.name) {
    return MissingValue(
        config.Field("schedule.name"),
        "a schedule (pipewright list schedules) or schedule.file");
  }
  const absl::StatusOr<ScheduleMatch> match =
      FindSchedule(*config.schedule.name);
  PW_RETURN_IF_ERROR(Prefix(config.Field("schedule.name"), match.status()));
  if (!strategy.pp) {
    return MissingValue(config.Field("strategy.pp"), NumbersAt("strategy.pp"));
  }
  if (!strategy.microbatches) {
    return MissingValue(config.Field("strategy.microbatches"),
                        NumbersAt("strategy.microbatches"));
  }
  RunSizes sizes;
  sizes.pp = *strategy.pp;
  sizes.vpp = strategy.vpp.value_or(match->info->default_vpp);
  sizes.microbatches = *strategy.microbatches;
  sizes.slices = strategy.slices.value_or(1);
  return sizes;
}

absl::Status Agree(const RunConfig& config, absl::string_view path,
                   const std::optional<int>& given, int in_file) {
  if (!given || *given == in_file) return absl::OkStatus();
  return BadValue(config.Field(path), absl::StrCat(*given),
                  absl::StrCat(in_file, ", which schedule file ",
                               *config.schedule.file, " says"));
}

absl::StatusOr<std::shared_ptr<const Schedule>> ReadScheduleFile(
    const RunConfig& config, std::vector<std::string>* warnings) {
  if (config.schedule.name) {
    return BothGiven(config.Field("schedule.file"),
                     config.Field("schedule.name"));
  }
  for (const auto& [key, value] : config.schedule.params) {
    if (key == PairParam().key) continue;
    return BadValue(config.Field(absl::StrCat("schedule.params.", key)), value,
                    "only pair: a schedule file takes no other parameters");
  }
  const absl::StatusOr<std::string> text =
      ReadFile(*config.schedule.file, InputKind::kSchedule);
  PW_RETURN_IF_ERROR(Prefix(config.Field("schedule.file"), text.status()));
  PW_ASSIGN_OR_RETURN(ScheduleFile file,
                      ParseScheduleFile(*text, *config.schedule.file));
  PW_RETURN_IF_ERROR(VerifyScheduleFile(file));
  warnings->insert(warnings->end(), file.notes.begin(), file.notes.end());
  return std::make_shared<const Schedule>(std::move(file.schedule));
}

absl::StatusOr<RunSizes> SizesFromFile(const RunConfig& config,
                                       const Schedule& schedule) {
  const StrategyChoice& strategy = config.strategy;
  PW_RETURN_IF_ERROR(Agree(config, "strategy.pp", strategy.pp, schedule.pp()));
  PW_RETURN_IF_ERROR(
      Agree(config, "strategy.vpp", strategy.vpp, schedule.vpp()));
  PW_RETURN_IF_ERROR(Agree(config, "strategy.microbatches",
                           strategy.microbatches, schedule.microbatches));
  PW_RETURN_IF_ERROR(
      Agree(config, "strategy.slices", strategy.slices, schedule.slices));
  return RunSizes{.pp = schedule.pp(),
                  .vpp = schedule.vpp(),
                  .microbatches = schedule.microbatches,
                  .slices = schedule.slices};
}

// Stages are few enough for tables, and F, B and W of every stage, microbatch
// and slice fit into memory.
absl::Status CheckPasses(const RunConfig& config, const RunSizes& sizes) {
  const int64_t stages = int64_t{sizes.pp} * sizes.vpp;
  if (stages > kMaxStages) {
    return BadValue(
        config.Field("strategy.pp"),
        absl::StrCat("pp * vpp = ", sizes.pp, " * ", sizes.vpp, " = ", stages),
        absl::StrCat("at most ", kMaxStages, " stages"));
  }
  const double passes = 3.0 * sizes.pp * sizes.vpp * sizes.slices *
                        static_cast<double>(sizes.microbatches);
  if (passes <= static_cast<double>(kMaxPasses)) return absl::OkStatus();
  return BadValue(
      config.Field("strategy.microbatches"), absl::StrCat(sizes.microbatches),
      absl::StrCat("a schedule of at most 2^31 passes (16 GiB); pp ", sizes.pp,
                   " * vpp ", sizes.vpp, " * slices ", sizes.slices,
                   " * microbatches ", sizes.microbatches, " * 3 = ", passes));
}

// O and L whose time nothing tells would look free.
absl::Status CheckCopies(const RunConfig& config, const Schedule& schedule) {
  if (!config.costs.offload_s && schedule.Has(PassKind::kOffload)) {
    return MissingValue(config.Field("costs.uniform.offload"),
                        "a time, since the schedule has O passes");
  }
  if (!config.costs.load_s && schedule.Has(PassKind::kLoad)) {
    return MissingValue(config.Field("costs.uniform.load"),
                        "a time, since the schedule has L passes");
  }
  return absl::OkStatus();
}

absl::Status CheckFactors(const RunConfig& config, const Schedule& schedule) {
  const size_t slices = config.costs.slice_factor.size();
  if (slices != 0 && slices != static_cast<size_t>(schedule.slices)) {
    return BadValue(config.Field("costs.slice_factor"),
                    absl::StrCat("a list of ", slices),
                    absl::StrCat("one factor a slice, ", schedule.slices));
  }
  const size_t count = config.costs.microbatch_factor.size();
  const auto needed =
      static_cast<size_t>(schedule.microbatches_per_direction());
  if (count == 0 || count == needed) return absl::OkStatus();
  return BadValue(
      config.Field("costs.microbatch_factor"),
      absl::StrCat("a list of ", count),
      absl::StrCat("one factor a microbatch",
                   schedule.directions == 1 ? "" : " of one replica", ", ",
                   needed));
}

std::optional<absl::Status> CheckLimit(const RunConfig& config,
                                       const Schedule& schedule,
                                       double held_until_weight) {
  const std::optional<double>& limit = config.strategy.max_activations;
  if (!limit) return {};
  const std::vector<double> peaks =
      PeakActivations(schedule, held_until_weight);
  const auto worst = std::max_element(peaks.begin(), peaks.end());
  if (*worst <= *limit * (1 + kLimitRounding)) return absl::OkStatus();
  return Prefix(
      config.Field("strategy.max_activations"),
      WithValue(absl::ResourceExhaustedError(absl::StrCat(
                    *limit, " is exceeded: with schedule ", schedule.name,
                    " rank ", worst - peaks.begin(), " holds ", *worst)),
                absl::StrCat(*limit), absl::StrCat(*worst, " or more")));
}

// The parameters that stand, and what `pair` makes of the schedule.
absl::Status TakePair(PreparedRun* run) {
  const ScheduleChoice& given = run->config.schedule;
  run->params = given.params;
  if (given.name) {
    PW_ASSIGN_OR_RETURN(const ScheduleMatch match, FindSchedule(*given.name));
    run->params.insert(match.implied.begin(), match.implied.end());
  }
  run->written = run->schedule;
  const auto pair = given.params.find(PairParam().key);
  if (pair == given.params.end()) return absl::OkStatus();
  absl::StatusOr<Schedule> schedule = WithPair(*run->schedule, pair->second);
  PW_RETURN_IF_ERROR(Locate(run->config, schedule.status()));
  run->schedule = std::make_shared<const Schedule>(*std::move(schedule));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<PreparedModel>> PrepareModelOnStages(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& spec, const Schedule* read) {
  PW_ASSIGN_OR_RETURN(const TrainingSpec training,
                      PrepareTraining(config, sizes, spec));
  if (!spec) return std::optional<PreparedModel>();
  PreparedModel model = {.spec = *spec, .training = training};
  PW_ASSIGN_OR_RETURN(model.rank_of_stage,
                      RankOfStage(config, sizes, spec, read));
  PW_ASSIGN_OR_RETURN(
      model.layout,
      PrepareLayout(config, sizes, *spec, training, model.rank_of_stage));
  return std::optional<PreparedModel>(std::move(model));
}

std::optional<DeviceSpec> DeviceOf(
    const std::optional<AnalyticOptions>& analytic,
    const std::optional<ShapeParams>& shape) {
  if (analytic) return analytic->device;
  if (!shape) return {};
  const absl::StatusOr<DeviceSpec> device = FindDevice(shape->device_name);
  return device.ok() ? std::optional<DeviceSpec>(*device) : std::nullopt;
}

}  // namespace

absl::Status Locate(const RunConfig& config, const absl::Status& status) {
  if (status.ok()) return status;
  const auto origin = config.origins.find(PartsOf(status).field.value_or(""));
  return origin == config.origins.end() ? status : At(origin->second, status);
}

absl::StatusOr<PreparedRun> Prepare(const RunConfig& config) {
  PreparedRun run;
  run.config = config;
  run.warnings = config.notes;
  run.engine = config.engine.value_or("simgrid");
  PW_RETURN_IF_ERROR(CheckNames(config, run.engine));

  RunSizes sizes;
  if (config.schedule.file) {
    PW_ASSIGN_OR_RETURN(run.schedule, ReadScheduleFile(config, &run.warnings));
    PW_ASSIGN_OR_RETURN(sizes, SizesFromFile(config, *run.schedule));
  } else {
    PW_ASSIGN_OR_RETURN(sizes, SizesFromConfig(config));
  }
  sizes.dp = config.strategy.dp.value_or(1);
  sizes.tp = config.strategy.tp.value_or(1);
  sizes.cp = config.strategy.cp.value_or(1);
  PW_RETURN_IF_ERROR(CheckPasses(config, sizes));
  PW_RETURN_IF_ERROR(CheckDegrees(config, sizes));

  PW_ASSIGN_OR_RETURN(const std::optional<ModelSpec> spec,
                      PrepareModel(config));
  PW_ASSIGN_OR_RETURN(std::vector<double> slice_factor,
                      PrepareSlices(config, spec, &sizes, &run.warnings));
  PW_ASSIGN_OR_RETURN(
      run.prepared_model,
      PrepareModelOnStages(config, sizes, spec, run.schedule.get()));
  const std::optional<PreparedModel>& model = run.prepared_model;
  if (model) PW_RETURN_IF_ERROR(CheckBytes(config, sizes, *model));
  LowerOptions& lower = run.lower;
  PW_ASSIGN_OR_RETURN(run.profile, LoadProfile(config, model.has_value()));
  lower.hop_bytes = PrepareHopBytes(config, model);
  PW_ASSIGN_OR_RETURN(
      PreparedNetwork network,
      PrepareNetwork(WithMeasuredHops(config, run.profile, sizes.pp,
                                      lower.hop_bytes, &run.warnings),
                     sizes, lower.hop_bytes, run.engine, &run.warnings));
  if (run.profile) {
    const bool measured = !config.costs.p2p_s && network.hop_s > 0 &&
                          network.network.cluster == nullptr;
    run.measured_hops = measured;
    if (measured) absl::StrAppend(&network.name, " (measured)");
    PW_RETURN_IF_ERROR(TakeProfileTimes(
        config, *model, network.shape ? &*network.shape : nullptr,
        &*run.profile, &run.warnings));
  }
  PW_ASSIGN_OR_RETURN(
      run.analytic, PrepareAnalytic(config, model ? &*model : nullptr,
                                    network.shape ? &*network.shape : nullptr));
  run.device = DeviceOf(run.analytic, network.shape);
  WarnOfDevice(config, run.analytic, network.shape, &run.warnings);
  PW_ASSIGN_OR_RETURN(
      lower.costs,
      PrepareCosts(config, sizes, model ? &*model : nullptr,
                   run.analytic ? &*run.analytic : nullptr,
                   run.profile ? &run.profile->costs.costs : nullptr,
                   &run.warnings));
  lower.costs.slice_factor = std::move(slice_factor);
  if (run.schedule == nullptr) {
    PW_ASSIGN_OR_RETURN(run.schedule,
                        PrepareSchedule(config, sizes, spec,
                                        PlanCostsOf(config, sizes, lower.costs,
                                                    network.hop_s)));
  }
  if (!config.schedule.file) {
    PW_RETURN_IF_ERROR(VerifySchedule(*run.schedule));
  }
  if (run.analytic || run.profile || AddsRecompute(config, model)) {
    TakeRecomputePasses(*run.schedule, &lower.costs);
  }
  if (run.analytic && run.schedule->directions == 2 &&
      !config.costs.optimizer_s) {
    lower.costs.optimizer_s = AnalyticOptimizerSeconds(
        model->spec, model->training, run.analytic->device, model->layout,
        model->rank_of_stage, run.schedule->directions);
    lower.costs.rollback_s =
        config.costs.rollback_s.value_or(lower.costs.optimizer_s);
  }
  PW_RETURN_IF_ERROR(
      TakeProfileEffects(network.network.cluster != nullptr, &run));
  PW_RETURN_IF_ERROR(TakePair(&run));
  PW_RETURN_IF_ERROR(CheckCopies(config, *run.schedule));
  PW_RETURN_IF_ERROR(CheckFactors(config, *run.schedule));
  run.limit = CheckLimit(config, *run.schedule, lower.costs.held_until_weight);
  if (model) {
    run.memory = PrepareMemory(config, *model, run.schedule,
                               network.shape ? &*network.shape : nullptr,
                               run.analytic ? &run.analytic->device : nullptr,
                               run.profile ? &*run.profile : nullptr);
    if (run.profile) TakeProfileMemory(*run.profile, &*run.memory);
  }
  PW_RETURN_IF_ERROR(PrepareDataParallel(config, sizes, &run));

  PW_ASSIGN_OR_RETURN(const int zero, ZeroStage(config));
  if (model) WarnOfGaps(config, sizes, *run.schedule, zero, &run.warnings);

  lower.network = network.network;
  TakeMeasuredCollectives(config, sizes,
                          network.shape ? &*network.shape : nullptr, &run);
  lower.wait_rule = config.strategy.waiting.value_or(WaitRule::kBuffered);
  lower.optimizer = OptimizerOf(config, *run.schedule);
  lower.validation =
      config.strategy.validation.value_or(ValidationPlace::kNoWait);
  lower.failing_steps.assign(config.strategy.rollback_iterations.begin(),
                             config.strategy.rollback_iterations.end());
  lower.iterations = config.iterations.value_or(0);
  run.cluster = network.network.cluster;
  run.mapping = network.network.mapping;
  run.network_name = std::move(network.name);
  run.system = std::move(network.system);
  if (model) run.model = spec->name;
  if (const auto tokens = MicrobatchTokens(config, spec)) {
    run.tokens = *tokens * sizes.microbatches * sizes.dp;
  }
  run.idle = FindIdleOptions(
      run, sizes, network.shape ? &*network.shape : nullptr, network.hop_s);
  for (const IdleOption& option : run.idle) {
    run.warnings.push_back(option.warning);
  }
  run.config.strategy.pp = sizes.pp;
  run.config.strategy.vpp = sizes.vpp;
  run.config.strategy.dp = sizes.dp;
  run.config.strategy.tp = sizes.tp;
  run.config.strategy.cp = sizes.cp;
  run.config.strategy.microbatches = sizes.microbatches;
  run.config.strategy.slices = sizes.slices;
  return run;
}

}  // namespace pipewright
