// The orders of the best layouts, searched for by schedule `optimal`.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <numeric>
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
// Splits of the layers that are tried for a layout, beside its own.
constexpr int kMostSplits = 6;

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

// Layers of its stages, and what each takes for a microbatch.
struct Split {
  std::vector<int64_t> layers;
  std::vector<int> rank_of_stage;
  std::vector<double> work_s;

  int pp() const {
    return 1 + *std::max_element(rank_of_stage.begin(), rank_of_stage.end());
  }
};

Split SplitOf(const PreparedRun& run) {
  Split split;
  if (!run.prepared_model) return split;
  split.rank_of_stage = run.prepared_model->rank_of_stage;
  for (size_t stage = 0; stage < split.rank_of_stage.size(); ++stage) {
    split.layers.push_back(
        run.prepared_model->layout.LayersOf(static_cast<int>(stage)));
    const StageCosts& own = run.costs.passes.stages[stage];
    split.work_s.push_back(PassCosts::OfPass(own, PassKind::kForward, 1) +
                           PassCosts::OfPass(own, PassKind::kBackwardFull, 1));
  }
  return split;
}

// One search for a layout, and the run of what it finds. `split`: null, or gets
// that of the layout.
PlanRefined Refined(const PlanResult& from, const RunConfig& config,
                    const PlanOptions& options, RunContext* context,
                    Split* split) {
  PlanRefined out = {.from = from, .config = config};
  absl::StatusOr<PreparedRun> prepared = Prepare(config, context);
  if (!prepared.ok()) {
    out.why_not = std::string(prepared.status().message());
    return out;
  }
  if (split != nullptr) *split = SplitOf(*prepared);
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

// The layers with one moved from the busiest rank to the `taker`-th idlest one:
// from its stage with most layers to that with fewest. Empty: there is none.
std::vector<int64_t> Moved(const Split& split, int taker) {
  const int pp = split.pp();
  std::vector<std::pair<double, int>> ranks;
  for (int rank = 0; rank < pp; ++rank) ranks.emplace_back(0, rank);
  for (size_t stage = 0; stage < split.work_s.size(); ++stage) {
    ranks[split.rank_of_stage[stage]].first += split.work_s[stage];
  }
  std::sort(ranks.begin(), ranks.end());
  if (taker + 1 >= pp) return {};
  int giving = -1, taking = -1;
  for (int stage = 0; stage < std::ssize(split.layers); ++stage) {
    const int64_t own = split.layers[stage];
    if (split.rank_of_stage[stage] == ranks.back().second &&
        (giving < 0 || own > split.layers[giving])) {
      giving = stage;
    }
    if (split.rank_of_stage[stage] == ranks[taker].second &&
        (taking < 0 || own < split.layers[taking])) {
      taking = stage;
    }
  }
  if (giving < 0 || taking < 0 || split.layers[giving] <= 1) return {};
  std::vector<int64_t> layers = split.layers;
  --layers[giving];
  ++layers[taking];
  return layers;
}

// Moves layers between ranks, one at a time, as long as what is found for it
// gets better. `split` is that of `refined`.
void MoveLayers(const PlanResult& from, const PlanOptions& options,
                const std::function<bool()>& cut, Split split,
                RunContext* context, PlanRefined* refined) {
  if (split.layers.empty()) return;
  std::set<std::vector<int64_t>> known = {split.layers};
  int taker = 0;
  for (int tries = 0; tries < kMostSplits && !cut(); ++tries) {
    std::vector<int64_t> layers = Moved(split, taker);
    // A second rank may have room where the idlest one has none.
    if (layers.empty() || !known.insert(layers).second) {
      if (++taker > 1) return;
      continue;
    }
    RunConfig config = refined->config;
    config.strategy.layers = layers;
    config.strategy.layout.reset();
    Split own;
    PlanRefined other = Refined(from, config, options, context, &own);
    if (!IsBetter(other, *refined)) {
      if (++taker > 1) return;
      continue;
    }
    other.layers = std::move(layers);
    *refined = std::move(other);
    split = std::move(own);
    taker = 0;
  }
}

// The work of all stages, on all ranks alike.
double LeastOfSplits(const Split& split, int microbatches) {
  if (split.layers.empty()) return 0;
  return std::accumulate(split.work_s.begin(), split.work_s.end(), 0.0) *
         microbatches / split.pp();
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
      Split split;
      refined = Refined(result, config, options, context, &split);
      // Split passes may cost more than whole ones.
      if (space.Facts(group.schedule, group.pp, group.vpp, group.microbatches)
              .full_backward) {
        config.schedule.params["backward"] = "full";
        PlanRefined whole = Refined(result, config, options, context, nullptr);
        if (IsBetter(whole, refined)) refined = std::move(whole);
      }
      const bool given =
          space.Layouts(group.pp, group.vpp)[group.layout].given ||
          space.request().fixed.contains("layout");
      if (!given && group.pp > 1) {
        const double least_s = LeastOfSplits(split, group.microbatches);
        MoveLayers(
            result, options, [&] { return cut() != PlanCut::kNone; },
            std::move(split), context, &refined);
        refined.least_of_splits_s = least_s;
      }
    }
    placements.push_back(placement);
    outcome->refined.push_back(std::move(refined));
  }
  if (outcome->cut == PlanCut::kNone) outcome->cut = cut();
  context->StopSearchesIf(nullptr);
}

}  // namespace pipewright
