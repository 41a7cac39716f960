// 1F1B: a rank runs as many forwards ahead as there are ranks behind it, then
// one forward and one backward in turn.
#include <algorithm>
#include <utility>

#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::one_f_one_b {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly("1f1b", "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly("1f1b", "strategy.slices", params.slices, 1));
  ScheduleBuilder builder("1f1b", Placement::Plain(params.pp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.microbatches);
    const int warm_up = std::min(params.pp - 1 - rank, params.microbatches);
    int backward = 0;
    for (int forward = 0; forward < params.microbatches; ++forward) {
      builder.Add(rank, PassKind::kForward, forward);
      if (forward >= warm_up) {
        builder.Add(rank, PassKind::kBackwardFull, backward++);
      }
    }
    while (backward < params.microbatches) {
      builder.Add(rank, PassKind::kBackwardFull, backward++);
    }
  }
  return std::move(builder).Finish();
}

bool WithoutHop(const ScheduleParams& params) { return params.costs.hop == 0; }

double BubbleWithoutHop(const ScheduleParams& params, int) {
  return (params.pp - 1) * params.costs.work();
}

// Round trips of p microbatches follow each other, so no hop is hidden.
bool WithHop(const ScheduleParams& params) {
  return params.pp >= 2 && params.microbatches % params.pp == 0;
}

double BubbleWithHop(const ScheduleParams& params, int) {
  const double pp = params.pp;
  return (pp - 1) * params.costs.work() +
         (2 * (pp - 1) * params.microbatches / pp + 2 * (pp - 2)) *
             params.costs.hop;
}

constexpr char kBubble[] = "(p-1)(F+B+W)";
constexpr char kBubbleHop[] = "(p-1)(F+B+W) + [2(p-1)m/p + 2(p-2)]c";
constexpr char kSource[] = "arXiv 2104.04473, section 2.2.1";
constexpr char kHopSource[] =
    "arXiv 2104.04473, section 2.2.1; hops c fitted to replays, p >= 2, p | m";

const RegisterSchedule kRow({
    .name = "1f1b",
    .summary = "one forward, one backward in turn",
    .source = "PipeDream-Flush, arXiv 2006.09503, section 3.3; order of "
              "Megatron-LM, arXiv 2104.04473, section 2.2.1",
    .torch_name = "1F1B",
    .torch_params = {},
    .default_vpp = 1,
    .params = {},
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = WithoutHop,
         .value = BubbleWithoutHop},
        BubbleClaims({.metric = Claim::Metric::kBubblePerRank,
                      .formula = kBubbleHop,
                      .source = kHopSource,
                      .domain = WithHop,
                      .value = BubbleWithHop},
                     {{.metric = Claim::Metric::kPeakActivations,
                       .formula = "min(p-d, m) on rank d",
                       .source = kSource,
                       .domain = [](const ScheduleParams&) { return true; },
                       .value = [](const ScheduleParams& params,
                                   int rank) -> double {
                         return std::min(params.pp - rank, params.microbatches);
                       }}})),
});

}  // namespace
}  // namespace pipewright::one_f_one_b
