// The automatic zero-bubble schedule: ZB-1p, ZB-2p, any memory limit.
#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/params.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/zb_auto_plan.h"
#include "sim/schedule/zb_list_plan.h"

namespace pipewright::zb_auto {
namespace {

// What zb-auto tries: the paper's search at the given limit and below, since
// more memory does not always mean a smaller bubble, and greedy lists, which no
// plan is to be slower than. They are faster below a limit of pp and where
// stages differ.

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

// `limit` is 1 or more. Not `below`: the paper's search at that limit alone.
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

constexpr char kName[] = "zb-auto";
constexpr char kBelow[] = "below";
constexpr char kLimit[] = "limit";

double LimitOf(const ScheduleParams& params) {
  return params.max_activations.value_or(2.0 * params.pp);
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(const std::string search,
                      ChoiceParam(params, "search", kBelow, {kBelow, kLimit}));
  const double limit = LimitOf(params);
  if (!(limit >= 1)) {
    const absl::Status missed = absl::ResourceExhaustedError(
        absl::StrCat(limit, " cannot be met; the smallest limit that works ",
                     "with schedule ", kName, " is 1"));
    return InField("strategy.max_activations",
                   WithValue(missed, absl::StrCat(limit), "1 or more"));
  }
  return PlanZbAuto(kName, params, limit, search == kBelow);
}

bool HasMemoryOf1f1b(const ScheduleParams& params) {
  return LimitOf(params) >= params.pp;
}

bool IsFull(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return HasMemoryOf1f1b(params) && params.microbatches >= 2 * params.pp &&
         costs.backward_weight <= costs.forward &&
         2 * costs.hop <= costs.backward_weight;
}

double FullBubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  return (params.pp - 1) * (costs.forward + costs.backward_input -
                            costs.backward_weight + 4 * costs.hop);
}

bool IsShort(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return HasMemoryOf1f1b(params) && params.microbatches <= params.pp &&
         costs.backward_weight <= std::min(costs.forward, costs.backward_input);
}

double ShortBubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  return (params.pp - 1) *
             (costs.forward + costs.backward_input + 2 * costs.hop) -
         (params.microbatches - 1) * costs.backward_weight;
}

bool IsEqual(const ScheduleParams& params) {
  return params.costs.equal_without_hop() &&
         params.microbatches >= 2 * params.pp - 1 &&
         LimitOf(params) >= 2 * params.pp - 1;
}

const RegisterSchedule kRow({
    .name = kName,
    .summary = "planned split backward within a memory limit (ZB-1p, ZB-2p); "
               "limit 2*pp unless given",
    .source = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section "
              "3.1; tie-breaks of the authors' released planner",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {{"search", kBelow, "below|limit",
                "below: also plan at lower limits (eighths of pp; up to 32 "
                "ranks whole numbers too) where a smaller bubble is possible, "
                "and by greedy lists; limit: the paper's search at the given "
                "limit only"}},
    .build = Build,
    .claims =
        {
            {.metric = Claim::Metric::kBubblePerRank,
             .sense = Claim::Sense::kUpperBound,
             .formula = "(p-1)(F+B-W) + 4(p-1)c",
             .source = "arXiv 2401.10241, tables 2 and 5 (ZB-1p is as good as "
                       "ZB-H1); W <= F, 2c <= W, m >= 2p, limit >= p",
             .domain = IsFull,
             .value = FullBubble},
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "(p-1)(F+B+2c) - (m-1)W",
             .source = "arXiv 2401.10241, appendix H: (m+p-1)(F+B)+W in all; "
                       "hops c fitted to replays; m <= p, W <= min(F, B), "
                       "limit >= p",
             .domain = IsShort,
             .value = ShortBubble},
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "0",
             .source = "arXiv 2401.10241, section 2.2; F = B = W, c = 0, "
                       "m >= 2p-1, limit >= 2p-1",
             .domain = IsEqual,
             .value = [](const ScheduleParams&, int) { return 0.0; }},
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "the limit",
             .source = "arXiv 2401.10241, section 3.1",
             .domain = [](const ScheduleParams&) { return true; },
             .value = [](const ScheduleParams& params,
                         int) { return LimitOf(params); }},
        },
});

}  // namespace
}  // namespace pipewright::zb_auto
