// V-Half, V-Min and V-ZB: a V placement with a split backward, at half, a third
// or any part of the activations of 1F1B.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/v_choice.h"
#include "schedules/v_greedy.h"
#include "schedules/v_launch.h"
#include "schedules/v_plan.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright::v_family {
namespace {

bool AnySize(const ScheduleParams&) { return true; }

// Some ten milliseconds beside the fixed order.
constexpr int64_t kMostPassesBeside = 120000;

// The fixed order of `block` (v_greedy.h). With real costs, the faster of the
// adaptive planner's (v_plan.h) and the launch planner's (v_launch.h), where
// that is faster yet and no rank holds more than the fullest one of the fixed
// order.
absl::StatusOr<Schedule> BuildGreedyV(
    absl::string_view name, const ScheduleParams& params,
    const std::vector<std::array<int, 4>>& block) {
  PW_ASSIGN_OR_RETURN(const VChoice choice, CheckVParams(name, params));
  const VOrders fixed = GreedyV(params.microbatches, block);
  if (!choice.real_costs) return VSchedule(name, fixed);
  const double held = params.costs.held_until_weight;
  const VLimit limit = {.chunks = VPeakChunks(fixed),
                        .activations = VPeak(fixed, held)};
  VPlan best = {.orders = fixed, .span = VSpan(fixed, params.costs)};
  for (std::optional<VPlan>& planned :
       std::array{PlanV(params.pp, params.microbatches, limit.chunks,
                        params.costs, kMostPassesBeside),
                  PlanVLaunches(params.pp, params.microbatches, limit,
                                params.costs, kMostPassesBeside)}) {
    if (planned && planned->span < best.span &&
        VPeak(planned->orders, held) <= limit.activations) {
      best = *std::move(planned);
    }
  }
  return VSchedule(name, best.orders);
}

}  // namespace

// V-Half: the building block with lifespans of three slots a rank, half of
// 1F1B's activations.
namespace v_half {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  const int pp = params.pp;
  const int gap = pp % 2 == 0 ? 3 : 0;
  std::vector<std::array<int, 4>> block;
  for (int rank = 0; rank < pp; ++rank) {
    block.push_back({2 * rank, 3 * pp - 2 - rank, 3 * pp - 1 + gap + 2 * rank,
                     6 * pp - 2 + gap - rank});
  }
  return BuildGreedyV("v-half", params, block);
}

double Peak(const ScheduleParams& params, int) {
  const int peak = (params.pp + 2) / 2;
  return peak;
}

// Every rank holds as much as the fullest one.
bool Level(const ScheduleParams& params) {
  return params.microbatches >= 2 * params.pp &&
         params.costs.held_until_weight == 1 && !params.costs.given;
}

bool EqualPasses(const ScheduleParams& params) {
  return params.pp >= 3 && params.microbatches >= 2 * params.pp &&
         params.costs.equal_without_hop();
}

double Bubble(const ScheduleParams& params, int rank) {
  const double slots = 6 * params.pp - 3 * (2 * Peak(params, rank)) - 1;
  return slots * params.costs.forward / 2;
}

const RegisterSchedule kRow({
    .name = "v-half",
    .summary = "V placement, split backward, half of 1F1B's memory",
    .source = "Pipeline Parallelism with Controllable Memory, arXiv "
              "2405.15362, section 4; order of the authors' implementation",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {VPlanParam()},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "floor((p+2)/2) M",
             .source = "arXiv 2405.15362, table 1, with what its rounding "
                       "leaves",
             .domain = AnySize,
             .value = Peak},
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "floor((p+2)/2) M on every rank",
             .source = "the same; m >= 2p, all held until W",
             .domain = Level,
             .value = Peak},
            {.metric = Claim::Metric::kBubblePerRank,
             .sense = Claim::Sense::kUpperBound,
             .formula = "6p-3k-1 slots of F/2, k the peak in chunks",
             .source = "arXiv 2405.15362, figure 13; F = B = W, c = 0, p >= "
                       "3, m >= 2p",
             .domain = EqualPasses,
             .value = Bubble},
        },
});

}  // namespace
}  // namespace v_half

// V-Min: the building block with the shortest lifespans, a third of 1F1B's
// activations.
//
// Where F, B and W differ its block stalls: a microbatch takes 3 max(F, B) and
// 4 hops, 6 over many ranks, instead of F + B + W (why: v_launch.h). Planned
// with costs it stalls less, but a bound of its memory stays: floor((p+4)/3)
// microbatches are no room for less than ((2p+1)(F+B)/2 + W + 4(p-1) hops) /
// (2 floor((p+4)/3)) each, more than F + B + W for many ranks or short W.
// Periods over F + B + W at the 28.3B costs of arXiv 2401.10241, table 9:
//
//   p        4     5     6     7     8     11    16    32
//   block    1.160 1.160 1.175 1.175 1.175 1.179 1.184 1.186
//   planned  1.160 1.000 1.114 1.175 1.088 1.113 1.184 1.176
//   bound    1.000 1.000 1.000 1.013 1.000 1.000 1.096 1.072
namespace v_min {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  const int pp = params.pp;
  const int gap = pp % 3 == 0 ? 2 : 0;
  std::vector<std::array<int, 4>> block;
  for (int rank = 0; rank < pp; ++rank) {
    block.push_back({rank, 2 * pp - 1 - rank, 2 * pp + gap + rank,
                     4 * pp + gap - 1 - rank});
  }
  return BuildGreedyV("v-min", params, block);
}

double Peak(const ScheduleParams& params, int) {
  const int peak = (params.pp + 4) / 3;
  return peak;
}

// Every rank holds as much as the fullest one.
bool Level(const ScheduleParams& params) {
  return params.pp % 3 != 2 && params.microbatches >= 2 * params.pp &&
         params.costs.held_until_weight == 1 && !params.costs.given;
}

bool EqualPasses(const ScheduleParams& params) {
  return params.pp >= 2 && params.microbatches > params.pp &&
         params.costs.equal_without_hop();
}

double Bubble(const ScheduleParams& params, int) {
  const int slots = 4 * params.pp - (params.pp % 3 == 0 ? 7 : 5);
  return slots * params.costs.forward / 2;
}

const RegisterSchedule kRow({
    .name = "v-min",
    .summary = "V placement, split backward, a third of 1F1B's memory; stalls "
               "where F, B and W differ, less where planned with costs",
    .source = "Pipeline Parallelism with Controllable Memory, arXiv "
              "2405.15362, section 4; order of the authors' implementation",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {VPlanParam()},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "floor((p+4)/3) M",
             .source = "arXiv 2405.15362, table 1, with what its rounding "
                       "leaves",
             .domain = AnySize,
             .value = Peak},
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "floor((p+4)/3) M on every rank",
             .source = "the same; p mod 3 is not 2, m >= 2p, all held until W",
             .domain = Level,
             .value = Peak},
            {.metric = Claim::Metric::kBubblePerRank,
             .sense = Claim::Sense::kUpperBound,
             .formula = "4p-5 slots of F/2, 4p-7 where 3 divides p",
             .source = "fitted to replays (11, 27, 59 slots at p = 4, 8, 16); "
                       "F = B = W, c = 0, m > p",
             .domain = EqualPasses,
             .value = Bubble},
        },
});

}  // namespace
}  // namespace v_min

// V-ZB: the adaptive V planner at any memory limit; no bubble for F = B = W at
// the memory of 1F1B.
namespace v_zb {
namespace {

// A limit is met when it is met but for rounding.
constexpr double kRounding = 1e-9;
// Some hundred milliseconds.
constexpr int64_t kMaxPasses = 6000000;

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_ASSIGN_OR_RETURN(const VChoice choice, CheckVParams("v-zb", params));
  const int most = 2 * params.pp;
  int limit = most;
  if (params.max_activations) {
    const double chunks = std::floor(2 * *params.max_activations + kRounding);
    limit = static_cast<int>(std::clamp<double>(chunks, 0, most));
  }
  std::optional<VPlan> plan =
      PlanV(params.pp, params.microbatches, limit,
            choice.real_costs ? params.costs : PlanCosts{}, kMaxPasses);
  if (!plan) {
    const std::string allowed = absl::StrCat(
        "at least ", SmallestVLimit(params.pp, params.microbatches) / 2.0);
    const absl::Status missed = absl::ResourceExhaustedError(absl::StrCat(
        *params.max_activations, " cannot be met; allowed: ", allowed,
        " (schedule v-zb at pp ", params.pp, ", microbatches ",
        params.microbatches, ", activations counted until W)"));
    return InField(
        "strategy.max_activations",
        WithValue(missed, absl::StrCat(*params.max_activations), allowed));
  }
  if (choice.real_costs) {
    const VLimit held = {.chunks = limit, .activations = limit / 2.0};
    std::optional<VPlan> launched = PlanVLaunches(
        params.pp, params.microbatches, held, params.costs, kMaxPasses);
    if (launched && launched->span < plan->span) plan = std::move(launched);
  }
  return VSchedule("v-zb", plan->orders);
}

double Peak(const ScheduleParams& params, int) {
  return std::min<double>(params.pp,
                          params.max_activations.value_or(params.pp));
}

bool EqualPasses(const ScheduleParams& params) {
  return params.microbatches >= 2 * params.pp && !params.max_activations &&
         params.costs.equal_without_hop();
}

double NoBubble(const ScheduleParams&, int) { return 0; }

const RegisterSchedule kRow({
    .name = "v-zb",
    .summary = "V placement, split backward, planned for any memory limit "
               "(counted until W), above 8 ranks from a sample of the blocks; "
               "zero bubble at 1F1B's memory",
    .source = "Pipeline Parallelism with Controllable Memory, arXiv "
              "2405.15362, section 4; the authors' adaptive planner",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {VPlanParam()},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "p M, or the limit",
             .source = "arXiv 2405.15362, table 1",
             .domain = AnySize,
             .value = Peak},
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "0",
             .source = "arXiv 2405.15362, table 1; F = B = W, c = 0, m >= 2p",
             .domain = EqualPasses,
             .value = NoBubble},
        },
});

}  // namespace
}  // namespace v_zb

}  // namespace pipewright::v_family
