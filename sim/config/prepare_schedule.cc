// The schedule: read or built, its parameters, its slices, its placement.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/prepare_parts.h"
#include "sim/memory/activations.h"
#include "sim/schedule/params.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/verify.h"

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

// The parameters that stand, and what `pair` makes of the schedule.
absl::Status TakePair(const RunConfig& config, PreparedSchedule* schedule) {
  const ScheduleChoice& given = config.schedule;
  schedule->params = given.params;
  if (given.name) {
    PW_ASSIGN_OR_RETURN(const ScheduleMatch match, FindSchedule(*given.name));
    schedule->params.insert(match.implied.begin(), match.implied.end());
  }
  schedule->lowered = schedule->written;
  const auto pair = given.params.find(PairParam().key);
  if (pair == given.params.end()) return absl::OkStatus();
  absl::StatusOr<Schedule> paired = WithPair(*schedule->written, pair->second);
  PW_RETURN_IF_ERROR(Locate(config, paired.status()));
  schedule->lowered = std::make_shared<const Schedule>(*std::move(paired));
  return absl::OkStatus();
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

absl::StatusOr<std::shared_ptr<const Schedule>> ReadScheduleFile(
    const RunConfig& config, RunContext* context,
    std::vector<std::string>* warnings) {
  if (config.schedule.name) {
    return BothGiven(config.Field("schedule.file"),
                     config.Field("schedule.name"));
  }
  for (const auto& [key, value] : config.schedule.params) {
    if (key == PairParam().key) continue;
    return BadValue(config.Field(absl::StrCat("schedule.params.", key)), value,
                    "only pair: a schedule file takes no other parameters");
  }
  PW_ASSIGN_OR_RETURN(const RunContext::ReadSchedule read,
                      context->ScheduleAt(config.Field("schedule.file"),
                                          *config.schedule.file));
  warnings->insert(warnings->end(), read.notes.begin(), read.notes.end());
  return read.schedule;
}

absl::StatusOr<PreparedSchedule> PrepareSchedule(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model, const PlanCosts& costs,
    std::shared_ptr<const Schedule> read, const std::function<bool()>& stops) {
  PreparedSchedule prepared;
  prepared.written = std::move(read);
  if (prepared.written == nullptr) {
    ScheduleParams params = ParamsOf(config, sizes, model, costs);
    params.stops = stops;
    absl::StatusOr<Schedule> built =
        BuildSchedule(*config.schedule.name, params);
    PW_RETURN_IF_ERROR(Locate(config, built.status()));
    PW_RETURN_IF_ERROR(VerifySchedule(*built));
    prepared.written = std::make_shared<const Schedule>(*std::move(built));
  }
  PW_RETURN_IF_ERROR(TakePair(config, &prepared));
  return prepared;
}

absl::Status RefusalOfSizes(const RunConfig& config, const RunSizes& sizes,
                            const std::optional<ModelSpec>& model,
                            const absl::Status& otherwise) {
  if (!config.schedule.name) return otherwise;
  const absl::Status built =
      BuildSchedule(*config.schedule.name,
                    ParamsOf(config, sizes, model, PlanCosts()))
          .status();
  return built.code() == absl::StatusCode::kInvalidArgument
             ? Locate(config, built)
             : otherwise;
}

FrameworkFacts FrameworkFactsOf(const RunConfig& config, const RunSizes& sizes,
                                const ModelSpec& model, const Schedule* read) {
  FrameworkFacts facts;
  facts.has_experts = model.has_experts();
  absl::StatusOr<Schedule> built;
  if (read == nullptr) {
    if (!config.schedule.name) return facts;
    const absl::StatusOr<ScheduleMatch> match =
        FindSchedule(*config.schedule.name);
    if (!match.ok()) return facts;
    facts.offloads = match->info->offload != OffloadMode::kNone;
    ScheduleParams params = ParamsOf(config, sizes, model, PlanCosts());
    // Few microbatches stand for many.
    const int period = 4 * params.pp;
    if (params.microbatches > period) {
      params.microbatches = period + params.microbatches % period;
    }
    built = BuildSchedule(*config.schedule.name, params);
    if (!built.ok()) return facts;
    read = &*built;
  }
  facts.trains = read->backward != BackwardRule::kNone;
  facts.flushes = read->update_every == 0;
  facts.directions = read->directions;
  facts.by_layer = config.schedule.params.count(PairParam().key) == 0;
  for (int rank = 0; rank < read->pp() && facts.by_layer; ++rank) {
    for (const Pass pass : read->order(rank)) {
      const bool copied =
          !IsComputePass(pass.kind()) && pass.kind() != PassKind::kSync;
      if (pass.joint_with_next() || copied) facts.by_layer = false;
    }
  }
  return facts;
}

absl::Status CheckAgainstSchedule(const RunConfig& config,
                                  const Schedule& schedule) {
  return CheckFactors(config, schedule);
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

absl::StatusOr<std::optional<Placement>> PlacementToPlan(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model) {
  if (!config.schedule.name) return std::optional<Placement>();
  PW_ASSIGN_OR_RETURN(const ScheduleMatch match,
                      FindSchedule(*config.schedule.name));
  if (!match.info->asks_for_room) return std::optional<Placement>();
  absl::StatusOr<Placement> placement = PlacementOf(
      *config.schedule.name, ParamsOf(config, sizes, model, PlanCosts()));
  PW_RETURN_IF_ERROR(Locate(config, placement.status()));
  return std::optional<Placement>(*std::move(placement));
}

absl::StatusOr<std::vector<int>> RankOfStage(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model, const Schedule* read) {
  absl::StatusOr<Placement> named;
  if (read == nullptr) {
    named = PlacementOf(*config.schedule.name,
                        ParamsOf(config, sizes, model, PlanCosts()));
    PW_RETURN_IF_ERROR(Locate(config, named.status()));
  }
  const Placement& placement = read == nullptr ? *named : read->placement;
  std::vector<int> rank_of_stage;
  rank_of_stage.reserve(placement.stages());
  for (int stage = 0; stage < placement.stages(); ++stage) {
    rank_of_stage.push_back(placement.RankOf(stage));
  }
  return rank_of_stage;
}

}  // namespace pipewright
