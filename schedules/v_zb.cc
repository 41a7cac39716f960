// V-ZB: the adaptive V planner at any memory limit; no bubble for F = B = W at
// the memory of 1F1B.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedules/v_family.h"
#include "schedules/v_launch.h"
#include "schedules/v_plan.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright::v_zb {
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

bool AnySize(const ScheduleParams&) { return true; }

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
}  // namespace pipewright::v_zb
