// The orders of the best layouts, searched for by schedule `optimal`.
#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/analysis/search/plan_search.h"
#include "sim/report/report.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/placement.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr char kSearched[] = "optimal";

// Do two points differ by their schedules alone?
bool IsSameLayout(PlanPoint one, const PlanPoint& other) {
  one.group.schedule = other.group.schedule;
  one.group.num_shardings = other.group.num_shardings;
  return one == other;
}

bool StandsAs(const Placement& placement, const ScheduleFacts& facts) {
  for (int stage = 0; stage < placement.stages(); ++stage) {
    if (placement.RankOf(stage) != facts.rank_of_stage[stage]) return false;
  }
  return true;
}

// The placement as the search calls it; why it does not take the layout is
// `why_not`.
std::string PlacementName(const PlanPoint& point, const ScheduleFacts& facts,
                          const StrategyChoice& given, std::string* why_not) {
  if (given.slices.value_or(1) > 1) {
    *why_not = "slices";
  } else if (facts.directions > 1) {
    *why_not = "two directions";
  } else if (point.offload != OffloadMode::kNone) {
    *why_not = "activations that go to the host";
  } else if (facts.recomputes) {
    *why_not = "recomputation in passes of its own";
  } else if (!facts.flushes) {
    *why_not = "pipelines that never flush";
  } else if (facts.rank_of_stage.empty()) {
    *why_not = "backwards that do not follow each other";
  }
  if (!why_not->empty()) return "";
  ScheduleParams sizes;
  sizes.pp = point.group.pp;
  sizes.vpp = point.group.vpp;
  if (StandsAs(LoopPlacement(sizes), facts)) {
    return sizes.vpp == 1 ? "plain" : "loop";
  }
  if (sizes.vpp % 2 == 0 && StandsAs(WavePlacement(sizes), facts)) return "v";
  *why_not = "stages that stand neither plain, in a loop nor in a V";
  return "";
}

// One search for a layout, and the run of what it finds.
PlanRefined Refined(const PlanResult& from, const RunConfig& config,
                    const PlanOptions& options, RunContext* context) {
  PlanRefined out = {.from = from, .config = config};
  absl::StatusOr<PreparedRun> prepared = Prepare(config, context);
  if (!prepared.ok()) {
    out.why_not = std::string(prepared.status().message());
    return out;
  }
  const std::shared_ptr<const Schedule> order = prepared->schedule.written;
  const bool fits =
      prepared->limit().ok() && (!prepared->memory || prepared->memory->fits());
  out.is_near_limit = IsAtRisk(*prepared);
  const absl::StatusOr<SimulatedRun> run = Simulate(*std::move(prepared));
  if (!run.ok()) {
    out.why_not = std::string(run.status().message());
    return out;
  }
  out.found = order->found;
  out.iteration_s = run->report.iteration_s;
  out.peak_bytes = MostPeakMemoryOf(run->report);
  if (!fits) {
    out.why_not = "what was found does not fit";
  } else if (out.iteration_s >= from.iteration_s * (1 - kSamePlan)) {
    out.why_not = "nothing faster was found";
  }
  if (!out.why_not.empty() || !from.confirmed_s) return out;
  RunConfig again = WithOrder(config, *order, context);
  again.engine = "fluid";
  again.costs.jitter = options.jitter;
  again.costs.seed = config.costs.seed.value_or(0);
  const absl::StatusOr<SimulatedRun> confirmed = Simulate(again, context);
  if (confirmed.ok()) out.confirmed_s = confirmed->report.iteration_s;
  if (!confirmed.ok() || *out.confirmed_s >= *from.confirmed_s) {
    out.why_not = "it is not faster on fluid with jitter";
  }
  return out;
}

// What may be taken before what may not, then the faster.
bool IsBetter(const PlanRefined& one, const PlanRefined& other) {
  const auto rank = [](const PlanRefined& refined) {
    return std::make_tuple(!refined.why_not.empty(), !refined.found,
                           refined.iteration_s);
  };
  return rank(one) < rank(other);
}

}  // namespace

void RefinePlan(const PlanOptions& options, PlanOutcome* outcome,
                RunContext* context) {
  if (options.refined == 0) return;
  PlanSpace& space = *outcome->space;
  const auto cut = [&] {
    return options.stops ? options.stops() : PlanCut::kNone;
  };
  context->StopSearchesIf([&] { return cut() != PlanCut::kNone; });
  std::vector<std::string> placements;  // [refined]
  int taken = 0;
  std::set<std::string> lacking;  // each reason once
  for (const PlanResult& result : outcome->ranked) {
    if (taken == options.refined) break;
    const PlanGroup& group = result.point.group;
    const std::string& own = space.schedules()[group.schedule];
    PlanRefined refined = {.from = result};
    std::string placement;
    if (own == kSearched) {
      refined.why_not = "its order is searched already";
    } else {
      std::string lacks;
      const ScheduleFacts& facts =
          space.Facts(group.schedule, group.pp, group.vpp, group.microbatches);
      placement = PlacementName(result.point, facts,
                                space.request().base.strategy, &lacks);
      if (!lacks.empty()) {
        refined.why_not =
            absl::StrCat("schedule ", kSearched, " does not take ", lacks);
      }
    }
    bool is_known = false;
    for (size_t row = 0; row < placements.size(); ++row) {
      is_known |= !placement.empty() && placements[row] == placement &&
                  IsSameLayout(outcome->refined[row].from.point, result.point);
    }
    if (is_known) continue;
    // What cannot be searched does not count.
    if (placement.empty() && !lacking.insert(refined.why_not).second) continue;
    taken += placement.empty() ? 0 : 1;
    if (cut() != PlanCut::kNone) break;
    RunConfig config = space.ConfigOf(result.point);
    config.schedule.name = kSearched;
    config.schedule.params = {{"placement", placement}};
    if (!placement.empty()) {
      refined = Refined(result, config, options, context);
      // Split passes may cost more than whole ones.
      if (space.Facts(group.schedule, group.pp, group.vpp, group.microbatches)
              .full_backward) {
        config.schedule.params["backward"] = "full";
        PlanRefined whole = Refined(result, config, options, context);
        if (IsBetter(whole, refined)) refined = std::move(whole);
      }
    }
    placements.push_back(placement);
    outcome->refined.push_back(std::move(refined));
  }
  if (outcome->cut == PlanCut::kNone) outcome->cut = cut();
  context->StopSearchesIf(nullptr);
}

}  // namespace pipewright
