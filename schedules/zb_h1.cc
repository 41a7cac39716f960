// ZB-H1: 1F1B with the backward split, W late enough to fill the end; memory
// of 1F1B.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::zb_h1 {
namespace {

constexpr char kPaper[] = "paper";
constexpr char kQuickStart[] = "quick-start";

// W lags its B by as many microbatches as there are ranks in front.
void AddPaperRank(int pp, int rank, int microbatches,
                  ScheduleBuilder& builder) {
  int forward = 0;
  int weight = 0;
  while (forward < pp - 1 - rank) {
    builder.Add(rank, PassKind::kForward, forward++);
  }
  for (int backward = 0; backward < microbatches; ++backward) {
    if (forward < microbatches) {
      builder.Add(rank, PassKind::kForward, forward++);
    }
    builder.Add(rank, PassKind::kBackwardInput, backward);
    if (backward >= rank) {
      builder.Add(rank, PassKind::kBackwardWeight, weight++);
    }
  }
  while (weight < microbatches) {
    builder.Add(rank, PassKind::kBackwardWeight, weight++);
  }
}

// The released quick start: only backwards that fill the start and the end of
// a rank defer their W, the others are followed by it at once. So W does not
// run in microbatch order.
void AddQuickStartRank(int pp, int rank, int microbatches,
                       ScheduleBuilder& builder) {
  const int warm_up = std::min(pp - 1 - rank, microbatches);
  const int last_steady = microbatches - warm_up - 1;
  std::vector<int> deferred;
  size_t next_deferred = 0;
  int forward = 0;
  while (forward < warm_up) builder.Add(rank, PassKind::kForward, forward++);
  for (int backward = 0; backward < microbatches; ++backward) {
    if (forward < microbatches) {
      builder.Add(rank, PassKind::kForward, forward++);
    }
    builder.Add(rank, PassKind::kBackwardInput, backward);
    if (rank == 0 || (backward >= rank && backward < last_steady)) {
      builder.Add(rank, PassKind::kBackwardWeight, backward);
      continue;
    }
    deferred.push_back(backward);
    if (backward >= rank) {
      builder.Add(rank, PassKind::kBackwardWeight, deferred[next_deferred++]);
    }
  }
  while (next_deferred < deferred.size()) {
    builder.Add(rank, PassKind::kBackwardWeight, deferred[next_deferred++]);
  }
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly("zb-h1", "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly("zb-h1", "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(
      const std::string variant,
      ChoiceParam(params, "variant", kPaper, {kPaper, kQuickStart}));
  if (variant == kPaper && params.microbatches < 2 * params.pp) {
    return BadValue("strategy.microbatches", absl::StrCat(params.microbatches),
                    absl::StrCat("at least ", 2 * params.pp,
                                 " (2*pp, schedule zb-h1; variant "
                                 "quick-start takes fewer)"));
  }
  ScheduleBuilder builder("zb-h1", Placement::Plain(params.pp),
                          params.microbatches);
  const auto add_rank = variant == kPaper ? AddPaperRank : AddQuickStartRank;
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{3} * params.microbatches);
    add_rank(params.pp, rank, params.microbatches, builder);
  }
  return std::move(builder).Finish();
}

// The last rank must not wait for its F, nor a W for the hop it hides.
bool Balanced(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return params.microbatches >= 2 * params.pp &&
         costs.backward_weight <= costs.forward &&
         2 * costs.hop <= costs.backward_weight;
}

double Bubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  return (params.pp - 1) * (costs.forward + costs.backward_input -
                            costs.backward_weight + 4 * costs.hop);
}

bool IsPaper(const ScheduleParams& params) {
  const auto variant = params.own.find("variant");
  return params.microbatches >= 2 * params.pp &&
         (variant == params.own.end() || variant->second == kPaper);
}

double Peak(const ScheduleParams& params, int rank) {
  return params.pp - rank + rank * params.costs.held_until_weight;
}

const RegisterSchedule kRow({
    .name = "zb-h1",
    .summary = "1F1B with split backward, memory of 1F1B",
    .source = "Zero Bubble Pipeline Parallelism, arXiv 2401.10241, section 2.1",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {{"variant", kPaper, "paper|quick-start",
                "quick-start: the order of the authors' zb-h1-quick-start "
                "branch"}},
    .build = Build,
    .claims =
        {
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "(p-1)(F+B-W) + 4(p-1)c",
             .source = "arXiv 2401.10241, section 2.3, table 2; hops c fitted "
                       "to replays; W <= F, 2c <= W, m >= 2p",
             .domain = Balanced,
             .value = Bubble},
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "(p-d) M + d M_W on rank d",
             .source = "arXiv 2401.10241, section 2.3, table 2",
             .domain = IsPaper,
             .value = Peak},
        },
});

}  // namespace
}  // namespace pipewright::zb_h1
