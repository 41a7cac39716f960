#include "schedules/zb_auto_search.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "sim/base/status.h"
#include "sim/replay/replay.h"
#include "sim/replay/zb_auto_plan.h"
#include "sim/replay/zb_list_plan.h"
#include "sim/schedule/builder.h"

namespace pipewright {
namespace {

// Lower limits: eighths of pp and, up to 32 ranks, whole microbatches; none
// above 4*pp, since no bubble needs more than about 3*pp (appendix B).
constexpr int kWholeUpTo = 32;
constexpr double kHighest = 4;  // pp
// This part of a span is no gain.
constexpr int64_t kHardly = 1'000'000'000;

// The given limit and lower ones, from the top.
std::vector<double> Limits(double given, int pp) {
  std::vector<double> limits = {given};
  auto eighths = static_cast<int64_t>(8 * std::min(given, kHighest * pp));
  for (; eighths >= 8; --eighths) {
    const bool whole = pp <= kWholeUpTo && eighths % 8 == 0;
    if (whole || eighths % pp == 0) limits.push_back(eighths / 8.0);
  }
  return limits;
}

// Only while something better is possible.
template <typename Planner, typename Plan>
Plan Search(const std::vector<double>& limits, Plan best, Planner* planner) {
  for (const double limit : limits) {
    if (planner->IsLeast(limit, best)) break;
    if (limit < planner->reached()) best = planner->Improve(limit, best);
  }
  return best;
}

template <typename Planner, typename Plan>
Schedule OrderOf(absl::string_view name, const ScheduleParams& params,
                 const Plan& plan, Planner* planner) {
  ScheduleBuilder builder(name, Placement::Plain(params.pp),
                          params.microbatches);
  planner->Record(plan, &builder);
  return std::move(builder).Finish();
}

// The longest span of a rank, in ticks.
absl::StatusOr<int64_t> SpanOf(const Schedule& schedule,
                               const ScheduleParams& params) {
  PlanCosts costs;
  for (const PlanTicks& ticks : TicksOfStages(params)) {
    costs.hop = static_cast<double>(ticks.hop);
    costs.stages.push_back(
        {.forward = static_cast<double>(ticks.forward),
         .backward_input = static_cast<double>(ticks.backward_input),
         .backward_weight = static_cast<double>(ticks.backward_weight)});
  }
  PW_ASSIGN_OR_RETURN(const ReplayTimes times, Replay(schedule, costs));
  return static_cast<int64_t>(times.span_per_rank);
}

}  // namespace

absl::StatusOr<Schedule> PlanZbAuto(absl::string_view name,
                                    const ScheduleParams& params, double limit,
                                    bool below) {
  ZbAutoPlanner planner(params);
  std::vector<double> limits = {limit};
  if (below) limits = Limits(limit, params.pp);
  const ZbPlan plan = Search(limits, ZbPlan(), &planner);
  Schedule planned = OrderOf(name, params, plan, &planner);
  const bool is_least =
      params.costs.stages.empty() && planner.IsLeast(limit, plan);
  if (!below || is_least) return planned;
  PW_ASSIGN_OR_RETURN(const int64_t span, SpanOf(planned, params));
  ZbListPlanner lists(params);
  const ZbList list =
      Search(limits, ZbList{.span = span - span / kHardly}, &lists);
  return list.limit > 0 ? OrderOf(name, params, list, &lists) : planned;
}

}  // namespace pipewright
