// The schedule by name: its parameters, its slices, its placement.
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

ScheduleParams ParamsOf(const RunConfig& config, const RunSizes& sizes,
                        const std::optional<ModelSpec>& model,
                        const PlanCosts& costs) {
  ScheduleParams params;
  params.pp = sizes.pp;
  params.vpp = sizes.vpp;
  params.microbatches = sizes.microbatches;
  params.slices = sizes.slices;
  params.costs = costs;
  params.max_activations = config.strategy.max_activations;
  params.sequence = SequenceShapeOf(config, model);
  params.own = config.schedule.params;
  params.own.erase(PairParam().key);  // TakePair's
  return params;
}

}  // namespace

absl::StatusOr<std::vector<double>> PrepareSlices(
    const RunConfig& config, const std::optional<ModelSpec>& model,
    RunSizes* sizes) {
  const std::vector<double>& given = config.costs.slice_factor;
  if (!config.schedule.name) return given;
  PW_ASSIGN_OR_RETURN(const ScheduleMatch match,
                      FindSchedule(*config.schedule.name));
  if (!match.info->slice_factor) return given;
  absl::StatusOr<std::vector<double>> factors =
      match.info->slice_factor(ParamsOf(config, *sizes, model, PlanCosts()));
  PW_RETURN_IF_ERROR(Locate(config, factors.status()));
  if (factors->empty()) return given;
  sizes->slices = static_cast<int>(factors->size());
  return given.empty() ? *std::move(factors) : given;
}

absl::StatusOr<std::shared_ptr<const Schedule>> PrepareSchedule(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model, const PlanCosts& costs) {
  absl::StatusOr<Schedule> schedule = BuildSchedule(
      *config.schedule.name, ParamsOf(config, sizes, model, costs));
  PW_RETURN_IF_ERROR(Locate(config, schedule.status()));
  return std::make_shared<const Schedule>(*std::move(schedule));
}

absl::StatusOr<std::vector<int>> RankOfStage(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model, const Schedule* read) {
  std::vector<int> rank_of_stage;
  if (sizes.vpp == 1) {
    for (int rank = 0; rank < sizes.pp; ++rank) rank_of_stage.push_back(rank);
    return rank_of_stage;
  }
  std::shared_ptr<const Schedule> built;
  if (read == nullptr) {
    PW_ASSIGN_OR_RETURN(built,
                        PrepareSchedule(config, sizes, model, PlanCosts()));
    read = built.get();
  }
  for (int stage = 0; stage < read->placement.stages(); ++stage) {
    rank_of_stage.push_back(read->placement.RankOf(stage));
  }
  return rank_of_stage;
}

}  // namespace pipewright
