// DualPipeV: DualPipe cut in half. One pipeline in a V of two chunks a rank;
// a forward of one chunk runs together with a backward of the other.
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedules/dualpipe_steps.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::dualpipe_v {
namespace {

constexpr char kName[] = "dualpipe-v";

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 2));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  const int least = 2 * params.pp;
  if (params.microbatches < least) {
    return BadSize(
        "strategy.microbatches", params.microbatches,
        [&](int count) { return count >= least; },
        absl::StrCat("schedule ", kName, ": at least 2*pp = ", least));
  }
  ScheduleBuilder builder(kName, Placement::V(params.pp), params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    // As many backwards are split.
    const int split = 2 * params.pp - 1 - rank;
    builder.Reserve(rank, int64_t{4} * params.microbatches + split);
    AddDualPipeRank(rank,
                    {.phases = {{.chunk = 0}, {.chunk = 1}},
                     .distance = rank,
                     .half = params.pp,
                     .microbatches = params.microbatches},
                    builder);
  }
  return std::move(builder).Finish();
}

double Bubble(const ScheduleParams& params, int) {
  return (params.pp - 1) / 2.0 * DualPipeGap(params);
}

constexpr char kBubble[] =
    "(p-1)(F&BW + BW - 3W)/2, F&BW = F+B+W; pair=dependencies: (p-1)F/2";
constexpr char kSource[] =
    "README of deepseek-ai/DualPipe, PP = 2p stages (its B is our BW); "
    "dependencies: counted in replays; F = B >= W (dependencies: = W), no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "V of two chunks, forwards overlapped with backwards",
    .source = "order of deepseek-ai/DualPipe 3da1bbe, DualPipeV, and of "
              "PyTorch's ScheduleDualPipeV; after Sea AI Lab's \"cut in half\"",
    .torch_name = "DualPipeV",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .placement = WavePlacement,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = IsDualPipeBalanced,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .formula = "(2p+1)/2",
          .source = "README of deepseek-ai/DualPipe, PP = 2p stages",
          .domain = [](const ScheduleParams&) { return true; },
          .value = [](const ScheduleParams& params, int) -> double {
            return params.pp + 0.5;
          }}}),
});

}  // namespace
}  // namespace pipewright::dualpipe_v
