#include "sim/config/prepare.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/check_texts.h"
#include "sim/config/framework.h"
#include "sim/config/prepare_parts.h"
#include "sim/config/time_scales.h"
#include "sim/config/unused_fields.h"
#include "sim/engine/engine.h"

namespace pipewright {
namespace {

absl::StatusOr<std::optional<PreparedModel>> PrepareModelOnStages(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& spec, const Schedule* read,
    RunContext* context) {
  PW_ASSIGN_OR_RETURN(const TrainingSpec training,
                      PrepareTraining(config, sizes, spec));
  if (!spec) return std::optional<PreparedModel>();
  PreparedModel model = {.spec = *spec, .training = training};
  PW_ASSIGN_OR_RETURN(model.rank_of_stage,
                      RankOfStage(config, sizes, spec, read));
  std::vector<double> slowness;
  if (config.strategy.split == LayerSplit::kBalanced) {
    PW_ASSIGN_OR_RETURN(slowness, RankSlowness(config, sizes, context));
  }
  absl::StatusOr<StageLayout> layout = PrepareLayout(
      config, sizes, *spec, training, model.rank_of_stage, slowness);
  PW_RETURN_IF_ERROR(layout.status());
  model.layout = *std::move(layout);
  model.shared = context->Shared(model.spec, model.training);
  return std::optional<PreparedModel>(std::move(model));
}

// The network, the costs and what the strategy says; gradients are
// PrepareDataParallel's.
void FillLowerOptions(const RunConfig& config, const Schedule& schedule,
                      PreparedRun* run) {
  LowerOptions& lower = run->lower;
  lower.costs = run->costs.passes;
  lower.jitter = run->costs.jitter;
  lower.interference = run->costs.interference;
  lower.contention = run->costs.analytic ? run->costs.analytic->contention : 1;
  lower.network = run->network.links;
  lower.wait_rule = config.strategy.waiting.value_or(WaitRule::kBuffered);
  lower.optimizer = OptimizerOf(config, schedule);
  lower.validation =
      config.strategy.validation.value_or(ValidationPlace::kNoWait);
  lower.failing_steps.assign(config.strategy.rollback_iterations.begin(),
                             config.strategy.rollback_iterations.end());
  lower.iterations = config.iterations.value_or(0);
}

}  // namespace

PreparedRun::PreparedRun() = default;
PreparedRun::PreparedRun(const PreparedRun&) = default;
PreparedRun::PreparedRun(PreparedRun&&) noexcept = default;
PreparedRun& PreparedRun::operator=(const PreparedRun&) = default;
PreparedRun& PreparedRun::operator=(PreparedRun&&) noexcept = default;
PreparedRun::~PreparedRun() = default;

absl::Status Locate(const RunConfig& config, const absl::Status& status) {
  if (status.ok()) return status;
  const auto origin = config.origins.find(PartsOf(status).field.value_or(""));
  return origin == config.origins.end() ? status : At(origin->second, status);
}

namespace {

// Prepares what WithDefaults has completed.
absl::StatusOr<PreparedRun> PrepareDefaulted(const RunConfig& given,
                                             const TimeScales* scales,
                                             RunContext* context) {
  PreparedRun run;
  run.config = given;
  run.warnings = given.notes;
  run.engine = given.engine.value_or(std::string(DefaultEngine()));
  PW_RETURN_IF_ERROR(CheckEngineNames(given, run.engine));
  if (given.network) {
    // What the two words meant beside engine simgrid, or the default engine.
    const bool counts = given.engine.value_or("simgrid") == "simgrid";
    if (counts) run.engine = *given.network == "fluid" ? "fluid" : "simgrid";
    run.config.engine = run.engine;
    run.config.network.reset();
    run.warnings.push_back(absl::StrCat(
        given.Field("network"),
        counts ? absl::StrCat(": ", *given.network,
                              " is an older word for engine: ", run.engine,
                              ", which runs")
               : absl::StrCat(" has no effect with engine ", run.engine)));
  }
  PW_ASSIGN_OR_RETURN(run.sequences, PrepareSequences(given, context));
  RunConfig config = WithSequences(run.config, run.sequences);

  std::shared_ptr<const Schedule> read;
  if (config.schedule.file) {
    PW_ASSIGN_OR_RETURN(read, ReadScheduleFile(config, context, &run.warnings));
  }
  PW_ASSIGN_OR_RETURN(RunSizes sizes,
                      PrepareSizes(config, read.get(), context));
  if (scales != nullptr) {
    for (RunConfig* const scaled : {&config, &run.config}) {
      PW_RETURN_IF_ERROR(
          ScaleGivenTimes(*scales, sizes.pp, sizes.vpp, context, scaled));
    }
  }
  PW_ASSIGN_OR_RETURN(const std::optional<ModelSpec> spec,
                      PrepareModel(config, context));
  PW_RETURN_IF_ERROR(CheckFramework(config, sizes));
  if (spec) AddModelNotes(given, *spec, &run.warnings);
  if (spec && config.strategy.framework) {
    const FrameworkFacts facts =
        FrameworkFactsOf(config, sizes, *spec, read.get());
    config = WithFramework(std::move(config), sizes, facts);
    run.config = WithFramework(std::move(run.config), sizes, facts);
    run.warnings.insert(run.warnings.end(),
                        run.config.notes.begin() + std::ssize(given.notes),
                        run.config.notes.end());
  }
  PW_RETURN_IF_ERROR(CheckOptimizerKind(config));
  PW_ASSIGN_OR_RETURN(std::vector<double> slice_factor,
                      PrepareSlices(config, spec, &sizes, &run.warnings));
  // With several chunks of a model the schedule knows best what is wrong with
  // sizes, and says it in place of what the sizes lead to.
  const auto refusal = [&](const absl::Status& status) {
    return spec && sizes.vpp > 1 && read == nullptr
               ? RefusalOfSizes(config, sizes, spec, status)
               : status;
  };
  absl::StatusOr<std::optional<PreparedModel>> on_stages =
      PrepareModelOnStages(config, sizes, spec, read.get(), context);
  if (!on_stages.ok()) return refusal(on_stages.status());
  run.prepared_model = *std::move(on_stages);
  const std::optional<PreparedModel>& model = run.prepared_model;
  if (model) PW_RETURN_IF_ERROR(CheckBytes(config, sizes, *model));
  absl::StatusOr<std::optional<PreparedProfile>> profile =
      LoadProfile(config, model.has_value(), context);
  if (!profile.ok()) return refusal(profile.status());
  run.lower.hop_bytes = PrepareHopBytes(config, model);

  absl::StatusOr<PreparedNetwork> network =
      PrepareNetwork(config, sizes, *profile, run.lower.hop_bytes, run.engine,
                     context, &run.warnings);
  if (!network.ok()) return refusal(network.status());
  run.network = *std::move(network);
  if (scales != nullptr && run.network.measured_hop) {
    run.network.hop_s *= scales->p2p;
    run.network.links.hop_s = run.network.hop_s;
  }
  absl::StatusOr<PreparedCosts> costs = PrepareCosts(
      config, sizes, model ? &*model : nullptr, run.network,
      *std::move(profile), std::move(slice_factor), context, &run.warnings);
  if (!costs.ok()) return refusal(costs.status());
  run.costs = *std::move(costs);
  if (model && run.costs.device) {
    // Transformer Engine transposes weights in 8 bit for Hopper alone
    // (pytorch/utils.py, is_non_tn_fp8_gemm_supported).
    run.prepared_model->training.reads_both_ways =
        run.costs.device->architecture == "blackwell";
  }
  PassCosts planned = run.costs.passes;
  if (scales != nullptr) ScaleOtherTimes(config, *scales, &planned);
  PlanCosts plan = PlanCostsOf(config, sizes, planned, run.network.hop_s);
  PW_ASSIGN_OR_RETURN(const std::optional<Placement> to_plan,
                      PlacementToPlan(config, sizes, spec));
  if (model && to_plan) {
    AddRoom(config, *model, run.network, run.costs, *to_plan, &plan);
  }
  if (to_plan) {
    PW_RETURN_IF_ERROR(AddCopyTimes(config, sizes, *to_plan, run, &plan));
  }
  PW_ASSIGN_OR_RETURN(
      run.schedule, PrepareSchedule(config, sizes, spec, plan, std::move(read),
                                    context->stops()));
  PW_RETURN_IF_ERROR(FitToSchedule(config, model, run.network,
                                   *run.schedule.lowered, run.engine,
                                   &run.costs, &run.warnings));
  // Behind it: of estimated times, R is still part of the backward before.
  if (scales != nullptr) ScaleOtherTimes(config, *scales, &run.costs.passes);
  PW_RETURN_IF_ERROR(PrepareOffload(config, sizes, &run));
  const Schedule& schedule = *run.schedule.lowered;
  PW_RETURN_IF_ERROR(CheckAgainstSchedule(config, schedule));
  run.schedule.limit =
      CheckLimit(config, schedule, run.costs.passes.held_until_weight);
  if (model) {
    run.memory = PrepareMemory(config, *model, run.network, run.costs,
                               run.schedule.lowered);
  }
  PW_RETURN_IF_ERROR(PrepareDataParallel(config, sizes, &run));
  PW_ASSIGN_OR_RETURN(const int zero, ZeroStage(config));
  if (model) {
    WarnOfGaps(config, sizes, model->training, schedule, zero, &run.warnings);
  }
  FillLowerOptions(config, schedule, &run);
  PW_RETURN_IF_ERROR(PrepareOptimizerOffload(config, sizes, &run));
  TakeMeasuredCollectives(config, sizes, &run);
  WarnOfUnusedMeasurements(config, &run);

  if (model) run.model = spec->name;
  if (const auto tokens = MicrobatchTokens(config, spec)) {
    run.tokens = *tokens * sizes.microbatches * sizes.dp;
  }
  PW_RETURN_IF_ERROR(FinishSequences(config, sizes, spec, nullptr, &run));
  LimitHostMemory(config, &run);
  const Network& links = run.network.links;
  PW_ASSIGN_OR_RETURN(
      run.slow,
      PrepareSlowDevices(config, sizes.pp, sizes.dp, sizes.tp * sizes.cp,
                         links.cluster.get(), links.mapping.get()));
  PW_ASSIGN_OR_RETURN(run.failing, PrepareFailures(config, sizes.devices()));
  run.unused = FindUnusedFields(run, sizes);
  for (const UnusedField& field : run.unused) {
    run.warnings.push_back(field.warning);
  }
  StrategyChoice& strategy = run.config.strategy;
  strategy.pp = sizes.pp;
  strategy.vpp = sizes.vpp;
  strategy.dp = sizes.dp;
  strategy.tp = sizes.tp;
  strategy.cp = sizes.cp;
  strategy.microbatches = sizes.microbatches;
  strategy.slices = sizes.slices;
  return run;
}

// Prepares a run whose replicas are all alike. `scales` may be null.
absl::StatusOr<PreparedRun> PrepareAlike(const RunConfig& as_given,
                                         const TimeScales* scales,
                                         RunContext* context) {
  PW_ASSIGN_OR_RETURN(RunConfig given, WithDefaults(as_given, context));
  absl::StatusOr<PreparedRun> run = PrepareDefaulted(given, scales, context);
  if (!RefusesUsualBatch(given, run.status())) return run;
  PW_RETURN_IF_ERROR(TakeNearestBatch(context, &given));
  return PrepareDefaulted(given, scales, context);
}

// `scales` may be null.
absl::StatusOr<PreparedRun> PrepareWith(const RunConfig& config,
                                        const TimeScales* scales,
                                        RunContext* context) {
  if (!HasClasses(config.strategy.dp_classes)) {
    return PrepareAlike(config, scales, context);
  }
  if (GivesLengths(config.sequences)) {
    return BothGiven(config.Field("strategy.dp_classes.replicas"),
                     "sequences, which make classes of their own");
  }
  if (SlowsDevices(config.slow)) {
    return BothGiven(config.Field("strategy.dp_classes.replicas"),
                     "slow.devices or slow.devices_law, which make classes of "
                     "their own");
  }
  return PrepareClasses(config, [scales, context](const RunConfig& own) {
    return PrepareAlike(own, scales, context);
  });
}

}  // namespace

absl::StatusOr<PreparedRun> Prepare(const RunConfig& config,
                                    RunContext* context) {
  return PrepareWith(config, nullptr, context);
}

absl::StatusOr<PreparedRun> PrepareScaled(const RunConfig& config,
                                          const TimeScales& scales,
                                          RunContext* context) {
  return PrepareWith(config, &scales, context);
}

absl::StatusOr<PreparedRun> Prepare(const RunConfig& config) {
  RunContext alone;
  return Prepare(config, &alone);
}

}  // namespace pipewright
