// DualPipe: the pipeline in two opposite directions. In the steady phase a
// forward of one runs together with a backward of the other.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedules/dualpipe_steps.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::dualpipe {
namespace {

constexpr char kName[] = "dualpipe";

absl::Status CheckSizes(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  const int microbatches = params.microbatches;
  if (params.pp % 2 != 0) {
    // If no pp fits the microbatches, the next message is about them.
    const bool any = microbatches % 2 != 0 || microbatches < 4;
    return BadSize(
        "strategy.pp", params.pp,
        [&](int pp) { return pp % 2 == 0 && (any || microbatches >= 2 * pp); },
        "schedule dualpipe: even, and at most microbatches/2");
  }
  if (microbatches % 2 != 0 || microbatches < 2 * params.pp) {
    return BadSize(
        "strategy.microbatches", microbatches,
        [&](int count) { return count % 2 == 0 && count >= 2 * params.pp; },
        absl::StrCat("schedule dualpipe: even, and at least 2*pp = ",
                     2 * params.pp));
  }
  return absl::OkStatus();
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(CheckSizes(params));
  ScheduleBuilder builder(kName, Placement::Plain(params.pp),
                          params.microbatches, 1, 2);
  for (int rank = 0; rank < params.pp; ++rank) {
    const int near = rank < params.pp / 2 ? 0 : 1;
    const int distance = std::min(rank, params.pp - 1 - rank);
    // As many backwards are split.
    const int split = params.pp - 1 - distance;
    builder.Reserve(rank, int64_t{2} * params.microbatches + split);
    AddDualPipeRank(rank,
                    {.phases = {{.direction = near}, {.direction = 1 - near}},
                     .distance = distance,
                     .half = params.pp / 2,
                     .microbatches = params.microbatches / 2},
                    builder);
  }
  return std::move(builder).Finish();
}

double Bubble(const ScheduleParams& params, int) {
  return (params.pp / 2 - 1) * DualPipeGap(params);
}

constexpr char kBubble[] =
    "(p/2-1)(F&BW + BW - 3W), F&BW = F+B+W; pair=dependencies: (p/2-1)F";
constexpr char kSource[] =
    "README of deepseek-ai/DualPipe (its B is our BW); dependencies: counted "
    "in replays; F = B >= W (dependencies: = W), no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "two directions, forwards overlapped with "
               "backwards; weights twice",
    .source = "DeepSeek-V3, arXiv 2412.19437, section 3.2.1; order of "
              "deepseek-ai/DualPipe 3da1bbe",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {},
    .build = Build,
    .claims =
        BubbleClaims({.metric = Claim::Metric::kBubblePerRank,
                      .formula = kBubble,
                      .source = kSource,
                      .domain = IsDualPipeBalanced,
                      .value = Bubble},
                     {{.metric = Claim::Metric::kPeakActivations,
                       .formula = "p+1",
                       .source = "README of deepseek-ai/DualPipe",
                       .domain = [](const ScheduleParams&) { return true; },
                       .value = [](const ScheduleParams& params,
                                   int) -> double { return params.pp + 1; }}}),
});

}  // namespace
}  // namespace pipewright::dualpipe
