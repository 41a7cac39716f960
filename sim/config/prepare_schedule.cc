// The schedule by name: its parameters, its slices, its placement.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/slice_work.h"

namespace pipewright {
namespace {

constexpr int kMostShown = 16;  // of a list in a warning

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

// A file has no times and no lengths: its slices may have been cut to cost the
// same, or not.
void WarnOfEqualSlices(const RunConfig& config,
                       const std::optional<ModelSpec>& model,
                       const RunSizes& sizes,
                       std::vector<std::string>* warnings) {
  const double attention = SequenceShapeOf(config, model).attention;
  if (sizes.slices == 1 || attention == 0) return;
  std::string factors;
  for (int slice = 0; slice < std::min(sizes.slices, kMostShown); ++slice) {
    absl::StrAppendFormat(&factors, "%s%.4g", slice == 0 ? "" : ",",
                          EqualSliceFactor(attention, slice, sizes.slices));
  }
  if (sizes.slices > kMostShown) factors += ",...";
  warnings->push_back(absl::StrCat(
      config.Field("schedule.file"), ": its ", sizes.slices,
      " slices are taken to cost the same; cut to equal lengths they would "
      "cost, with this model's causal attention, costs.slice_factor=[",
      factors, "]"));
}

}  // namespace

absl::StatusOr<std::vector<double>> PrepareSlices(
    const RunConfig& config, const std::optional<ModelSpec>& model,
    RunSizes* sizes, std::vector<std::string>* warnings) {
  const std::vector<double>& given = config.costs.slice_factor;
  if (!config.schedule.name) {
    if (given.empty()) WarnOfEqualSlices(config, model, *sizes, warnings);
    return given;
  }
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
