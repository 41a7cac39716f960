// ZB-H2: forwards run twice as far ahead as in ZB-H1, so that the backward
// wave leaves no gap on any rank; memory of twice 1F1B.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::zb_h2 {
namespace {

void AddRank(int pp, int rank, int microbatches, ScheduleBuilder& builder) {
  int forward = 0;
  int weight = 0;
  while (forward < 2 * (pp - 1 - rank)) {
    builder.Add(rank, PassKind::kForward, forward++);
  }
  for (int backward = 0; backward < microbatches; ++backward) {
    if (forward < microbatches) {
      builder.Add(rank, PassKind::kForward, forward++);
    }
    builder.Add(rank, PassKind::kBackwardInput, backward);
    if (backward >= 2 * rank) {
      builder.Add(rank, PassKind::kBackwardWeight, weight++);
    }
  }
  while (weight < microbatches) {
    builder.Add(rank, PassKind::kBackwardWeight, weight++);
  }
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly("zb-h2", "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly("zb-h2", "strategy.slices", params.slices, 1));
  if (params.microbatches < 2 * params.pp) {
    return BadValue(
        "strategy.microbatches", absl::StrCat(params.microbatches),
        absl::StrCat("at least ", 2 * params.pp, " (2*pp, schedule zb-h2)"));
  }
  ScheduleBuilder builder("zb-h2", Placement::Plain(params.pp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{3} * params.microbatches);
    AddRank(params.pp, rank, params.microbatches, builder);
  }
  return std::move(builder).Finish();
}

bool Full(const ScheduleParams& params) {
  return params.microbatches >= 2 * params.pp;
}

bool Balanced(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return Full(params) && costs.backward_weight <= costs.forward &&
         2 * costs.hop <= costs.forward + costs.backward_input;
}

double Bubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  return std::max(
      0.0, (params.pp - 1) * (costs.forward + costs.backward_input +
                              2 * costs.hop - 2 * costs.backward_weight));
}

double Peak(const ScheduleParams& params, int rank) {
  return 2 * params.pp - 1 - 2 * rank +
         2 * rank * params.costs.held_until_weight;
}

const RegisterSchedule kRow({
    .name = "zb-h2",
    .summary = "split backward without bubble, twice the memory of 1F1B",
    .source = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.2",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {},
    .build = Build,
    .claims =
        {
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "max(0, (p-1)(F+B+2c-2W))",
             .source = "arXiv 2401.10241, section 2.3, table 2; hops c fitted "
                       "to replays; W <= F, 2c <= F+B, m >= 2p",
             .domain = Balanced,
             .value = Bubble},
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "(2p-1-2d) M + 2d M_W on rank d",
             .source = "arXiv 2401.10241, section 2.3, table 2",
             .domain = Full,
             .value = Peak},
        },
});

}  // namespace
}  // namespace pipewright::zb_h2
