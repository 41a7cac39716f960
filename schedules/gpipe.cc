// GPipe: every forward, then every backward.
#include <utility>

#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::gpipe {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly("gpipe", "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly("gpipe", "strategy.slices", params.slices, 1));
  ScheduleBuilder builder("gpipe", Placement::Plain(params.pp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.microbatches);
    for (int microbatch = 0; microbatch < params.microbatches; ++microbatch) {
      builder.Add(rank, PassKind::kForward, microbatch);
    }
    for (int microbatch = 0; microbatch < params.microbatches; ++microbatch) {
      builder.Add(rank, PassKind::kBackwardFull, microbatch);
    }
  }
  return std::move(builder).Finish();
}

bool Always(const ScheduleParams&) { return true; }

double Bubble(const ScheduleParams& params, int) {
  return (params.pp - 1) * (params.costs.work() + 2 * params.costs.hop);
}

const RegisterSchedule kRow({
    .name = "gpipe",
    .summary = "all forwards, then all backwards",
    .source = "GPipe, arXiv 1811.06965, section 2.3",
    .torch_name = "GPipe",
    .torch_params = {},
    .default_vpp = 1,
    .params = {},
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = "(p-1)(F+B+W) + 2(p-1)c",
         .source = "arXiv 2104.04473, section 2.2.1; hop c derived",
         .domain = Always,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .formula = "m",
          .source = "arXiv 2104.04473, section 2.2.1",
          .domain = Always,
          .value = [](const ScheduleParams& params, int) -> double {
            return params.microbatches;
          }}}),
});

}  // namespace
}  // namespace pipewright::gpipe
