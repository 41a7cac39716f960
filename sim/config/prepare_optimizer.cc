// An optimizer whose states are in the memory of the host.
#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"
#include "sim/program/network_time.h"

namespace pipewright {
namespace {

constexpr char kPlacement[] = "strategy.optimizer_placement";

// Bytes of a parameter: master weight, both moments and gradient in fp32 on the
// host; the states that visit a device, and the gradient beside them.
// [numerics, bytes]
constexpr double kHostBytesEach = 16;
constexpr double kVisitingBytesEach = 12 + 4;
// superoffload: weights of all early steps come back in fp32 and wait for the
// norm, gradients leave subgroup by subgroup; a gradient in bf16.
// [numerics, bytes]
constexpr double kArrivedBytesEach = 4;
constexpr double kLeavingBytesEach = 4;
constexpr double kGradientBytesEach = 2;

absl::Status Needs(const RunConfig& config, absl::string_view field,
                   absl::string_view name, absl::string_view what) {
  constexpr char kGpu[] = ", or strategy.optimizer_placement gpu";
  return MissingValue(config.Field(field),
                      absl::StrCat(what, ", which ", name, " needs", kGpu));
}

// What each replica of a stage steps, of one device: by what memory counts, so
// that experts and a table that is held once count as they are held.
absl::StatusOr<std::vector<double>> ParametersOfStages(const RunConfig& config,
                                                       const RunSizes& sizes,
                                                       const PreparedRun& run) {
  std::vector<double> parameters;
  if (!run.prepared_model) {
    PW_ASSIGN_OR_RETURN(const TrainingSpec training,
                        PrepareTraining(config, sizes, std::nullopt));
    const double shards =
        TraitsOf(run.lower.data_parallel).shards_step ? training.shards() : 1;
    for (const double bytes : GradientBytes(config, sizes, std::nullopt)) {
      parameters.push_back(bytes / training.gradient_bytes / shards);
    }
    if (!parameters.empty()) return parameters;
    return Needs(config, kPlacement, "it",
                 "a model (--model) or costs.gradient_bytes, from which the "
                 "number of parameters follows");
  }
  const PreparedModel& model = *run.prepared_model;
  const double each = model.training.moment_bytes;
  if (each <= 0) {
    return BadValue(config.Field("strategy.moment_bytes_per_parameter"), "0",
                    "above 0 with strategy.optimizer_placement: without "
                    "moments there is nothing to keep on the host");
  }
  const ScheduleMemory& memory = *run.memory->memory;
  for (size_t stage = 0; stage < memory.stages.size(); ++stage) {
    const StageMemory& held = *memory.stages[stage];
    int64_t bytes = held.fixed.of[static_cast<int>(MemoryKind::kMoments)];
    const bool beside_table =
        model.rank_of_stage[stage] == model.rank_of_stage[0] && stage > 0 &&
        memory.stages[0]->has_table;
    if (beside_table) {
      bytes -= held.tied_table.of[static_cast<int>(MemoryKind::kMoments)];
    }
    parameters.push_back(static_cast<double>(bytes) / each);
  }
  return parameters;
}

absl::Status CheckHost(const RunConfig& config, const PreparedRun& run,
                       const OptimizerOffload& offload) {
  const absl::string_view name = TraitsOf(offload.placement).name;
  const ShapeParams* const shape = run.network.system_shape();
  if (shape == nullptr) {
    return BadValue(config.Field(kPlacement), name,
                    "gpu without a system (--system NAME), whose links to the "
                    "host and host memory it needs");
  }
  if (!shape->has_pcie()) {
    return Needs(config, "system.pcie.bandwidth", name, "above 0");
  }
  if (shape->host.bytes_per_s == 0 && offload.adam_rate == 0) {
    return Needs(config, "system.host.memory_bandwidth", name,
                 "above 0, or system.host.adam_rate");
  }
  const bool casts = offload.placement != OptimizerPlacement::kSuperOffload;
  if (casts && shape->host.bytes_per_s == 0 && offload.cast_rate == 0) {
    return Needs(config, "system.host.cast_rate", name,
                 "above 0, or system.host.memory_bandwidth");
  }
  const bool blocks = casts && offload.flush == GradientFlush::kBlocking;
  if (blocks && offload.flush_rate == 0) {
    return Needs(config, "system.host.flush_rate",
                 absl::StrCat(name, " with strategy.gradient_flush blocking"),
                 "above 0");
  }
  return absl::OkStatus();
}

// The slowest device's, as BestStride wants them.
int ChooseStride(const PreparedRun& run, const OptimizerOffload& offload) {
  const Cluster& cluster = *run.network.links.cluster;
  double host = std::numeric_limits<double>::infinity();
  double copies = host;
  for (int rank = 0; rank < run.schedule.lowered->pp(); ++rank) {
    for (const bool to_host : {true, false}) {
      const FlowBundle flows = HostFlows(run.network.links, 0, rank, to_host);
      copies = std::min(copies, cluster.RateOf(flows.loads));
    }
  }
  const HostClass& spec = run.network.shape->host;
  if (offload.adam_rate > 0) host = offload.adam_rate;
  if (spec.bytes_per_s > 0 && offload.adam_bytes > 0) {
    host = std::min(host, spec.bytes_per_s / offload.adam_bytes);
  }
  // All devices step at the same time.
  if (spec.bytes_per_s > 0) copies = std::min(copies, spec.bytes_per_s);
  return BestStride(host, copies);
}

// Before anybody lists them.
absl::Status CheckSubgroups(const RunConfig& config, const PreparedRun& run,
                            const OptimizerOffload& offload) {
  const Schedule& schedule = *run.schedule.lowered;
  double most = 0;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    most = std::max(most, ParametersOf(schedule, offload, rank));
  }
  if (most / offload.subgroup_size <= kMostSubgroups) return absl::OkStatus();
  return BadValue(
      config.Field("strategy.subgroup_size"),
      absl::StrCat(offload.subgroup_size),
      absl::StrFormat("at least %.4g: the %.4g parameters of a rank "
                      "are %d subgroups at most",
                      most / kMostSubgroups, most, kMostSubgroups));
}

absl::Status CheckStride(const RunConfig& config, const PreparedRun& run,
                         const OptimizerOffload& offload) {
  const int stride = config.strategy.optimizer_stride.value_or(0);
  if (stride == 0) return absl::OkStatus();
  int64_t most = 1;
  for (int rank = 0; rank < run.schedule.lowered->pp(); ++rank) {
    most = std::max(
        most, NumSubgroups(ParametersOf(*run.schedule.lowered, offload, rank),
                           offload.subgroup_size));
  }
  if (stride >= 2 && stride <= most) return absl::OkStatus();
  return BadValue(
      config.Field("strategy.optimizer_stride"), absl::StrCat(stride),
      most < 2 ? "0: a rank has a single subgroup (strategy.subgroup_size)"
               : absl::StrCat("0, which chooses it, or 2 to ", most,
                              ", the subgroups of a rank"));
}

}  // namespace

absl::Status PrepareOptimizerOffload(const RunConfig& config,
                                     const RunSizes& sizes, PreparedRun* run) {
  const StrategyChoice& strategy = config.strategy;
  OptimizerOffload& offload = run->lower.offload;
  offload.placement =
      strategy.optimizer_placement.value_or(OptimizerPlacement::kGpu);
  if (!offload.active()) return absl::OkStatus();
  const PlacementTraits& traits = TraitsOf(offload.placement);
  offload.flush = strategy.gradient_flush.value_or(traits.flush);
  offload.subgroup_size =
      strategy.subgroup_size.value_or(offload.subgroup_size);
  if (traits.has_ratio) {
    offload.ratio = strategy.optimizer_ratio.value_or(1);
  }
  if (const ShapeParams* const shape = run->network.system_shape()) {
    offload.adam_bytes = shape->host.adam_bytes;
    offload.cast_bytes = shape->host.cast_bytes;
    offload.adam_rate = shape->host.adam_rate;
    offload.cast_rate = shape->host.cast_rate;
    offload.flush_rate = shape->host.flush_rate;
    offload.device_adam_rate = shape->host.device_adam_rate;
    offload.device_cast_rate = shape->host.device_cast_rate;
    offload.slots = shape->host.slots;
  }
  const OptimizerMode mode = OptimizerOf(config, *run->schedule.lowered);
  if (mode != OptimizerMode::kSynchronised) {
    return BadValue(config.Field(kPlacement), traits.name,
                    "gpu, unless strategy.optimizer is synchronised");
  }
  PW_RETURN_IF_ERROR(CheckHost(config, *run, offload));
  PW_ASSIGN_OR_RETURN(offload.parameters,
                      ParametersOfStages(config, sizes, *run));
  PW_RETURN_IF_ERROR(CheckSubgroups(config, *run, offload));
  if (traits.has_stride) {
    PW_RETURN_IF_ERROR(CheckStride(config, *run, offload));
    offload.stride = strategy.optimizer_stride.value_or(0);
    if (offload.stride == 0) offload.stride = ChooseStride(*run, offload);
  }
  TakeOffloadedStates(run);
  if (run->engine == "fast") {
    run->warnings.push_back(
        "engine fast: the host's memory and its links are not shared, so "
        "every copy and every operation of the host takes what it takes alone");
  }
  return absl::OkStatus();
}

OffloadedStates OptimizerHostBytes(const Schedule& schedule,
                                   const OptimizerOffload& offload, int rank) {
  const double parameters = ParametersOf(schedule, offload, rank);
  const SubgroupPlan plan = PlanOf(schedule, offload, rank);
  const auto subgroups = static_cast<double>(plan.steps.size());
  const double subgroup = parameters / subgroups;
  OffloadedStates bytes;
  bytes.resident = plan.Count(SubgroupStep::kResident) / subgroups;
  bytes.host = std::llround(kHostBytesEach * parameters * (1 - bytes.resident));
  if (offload.placement == OptimizerPlacement::kSuperOffload) {
    bytes.device = std::llround(kArrivedBytesEach * parameters +
                                kLeavingBytesEach * subgroup);
  } else if (const int visits = plan.Count(SubgroupStep::kDevice)) {
    bytes.device = std::llround(
        (kVisitingBytesEach + kGradientBytesEach * visits) * subgroup);
  }
  return bytes;
}

std::vector<OffloadedStates> OffloadedStatesOf(const PreparedRun& run) {
  std::vector<OffloadedStates> states;
  const OptimizerOffload& offload = run.lower.offload;
  if (!offload.active()) return states;
  const Schedule& schedule = *run.schedule.lowered;
  for (int rank = 0; rank < schedule.pp(); ++rank) {
    states.push_back(OptimizerHostBytes(schedule, offload, rank));
  }
  return states;
}

}  // namespace pipewright
