// Seq1F1B: 1F1B whose unit is a slice of a sequence. Backwards take the slices
// of the oldest microbatch last to first.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "schedules/slice_plan.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/microbatch_groups.h"
#include "sim/schedule/registry.h"

namespace pipewright::seq1f1b {
namespace {

constexpr char kName[] = "seq1f1b";
// Groups of pp slices run through the chunks together; each has to hold whole
// microbatches, or a backward would come before its last slice.
absl::Status CheckGroups(const ScheduleParams& params) {
  if (params.vpp == 1) return absl::OkStatus();
  if (params.pp % params.slices != 0) {
    int below = params.slices;
    int above = params.slices;
    while (params.pp % below != 0) --below;
    while (above < params.pp && params.pp % above != 0) ++above;
    return BadValue(
        "strategy.slices", absl::StrCat(params.slices),
        absl::StrCat(below,
                     above > params.pp ? "" : absl::StrCat(" or ", above),
                     ", the nearest (schedule ", kName,
                     " with several chunks: a divisor of pp)"));
  }
  const int group = params.pp / params.slices;
  if (params.microbatches % group == 0) return absl::OkStatus();
  const int below = params.microbatches / group * group;
  return BadValue(
      "strategy.microbatches", absl::StrCat(params.microbatches),
      absl::StrCat(below > 0 ? absl::StrCat(below, " or ") : "", below + group,
                   ", the nearest (schedule ", kName,
                   " with several chunks: a multiple of pp / slices)"));
}

int64_t WarmUp(const ScheduleParams& params, int rank) {
  const int64_t slices = params.slices;
  const int64_t units = params.vpp * slices * params.microbatches;
  if (params.vpp == 1) {
    return std::min(params.pp - rank + slices - 2, units);
  }
  // As in Megatron-LM of its time.
  if (params.microbatches == params.pp) return units;
  return std::min(int64_t{params.vpp - 1} * params.pp +
                      2 * (params.pp - 1 - rank) + slices - 1,
                  units);
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(BalanceFactors(params).status());
  PW_RETURN_IF_ERROR(CheckGroups(params));
  const int slices = params.slices;
  ScheduleBuilder builder(kName,
                          params.vpp == 1
                              ? Placement::Plain(params.pp)
                              : Placement::Loop(params.pp, params.vpp),
                          params.microbatches, slices);
  // A slice is what a microbatch is in interleaved 1F1B.
  const UnitCursor units(params.microbatches * slices, params.vpp, params.pp);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, 2 * units.count());
    UnitCursor forward = units;
    UnitCursor backward = units;
    const int64_t warm_up = WarmUp(params, rank);
    for (int64_t step = 0; step < units.count() + warm_up; ++step) {
      if (step < units.count()) {
        builder.Add(rank, PassKind::kForward, forward.microbatch() / slices,
                    forward.chunk(), forward.microbatch() % slices);
        forward.Advance();
      }
      if (step < warm_up) continue;
      builder.Add(rank, PassKind::kBackwardFull, backward.microbatch() / slices,
                  params.vpp - 1 - backward.chunk(),
                  slices - 1 - backward.microbatch() % slices);
      backward.Advance();
    }
  }
  return std::move(builder).Finish();
}

bool OneChunk(const ScheduleParams& params) { return params.vpp == 1; }

bool WithoutHop(const ScheduleParams& params) {
  return OneChunk(params) && params.costs.hop == 0 &&
         params.costs.slice_factor.empty();
}

double Bubble(const ScheduleParams& params, int) {
  return (params.pp - 1) * params.costs.work() / params.slices;
}

double Peak(const ScheduleParams& params, int rank) {
  return std::min((params.pp - rank + params.slices - 1.0) / params.slices,
                  1.0 * params.microbatches);
}

constexpr char kBubble[] = "(p-1)(F+B+W)/k";
constexpr char kSource[] =
    "derived from the order; equal slices, v = 1, no hops";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "1F1B over slices of a sequence",
    .source = "Seq1F1B, arXiv 2406.03488; order of the authors' implementation",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params =
        {{"balance", "uniform", "uniform|tokens|flops",
          "slices that cost the same; of equal length, later ones dearer; cut "
          "so that each has the same work"},
         {"tokens", "the model's sequence", "1..", "length of a sequence"},
         {"attention", "from the model", "0..1",
          "part of the work that is causal attention"}},
    .build = Build,
    .claims = BubbleClaims({.metric = Claim::Metric::kBubblePerRank,
                            .formula = kBubble,
                            .source = kSource,
                            .domain = WithoutHop,
                            .value = Bubble},
                           {{.metric = Claim::Metric::kPeakActivations,
                             .formula = "min((p-d+k-1)/k, m) on rank d",
                             .source = "derived from the warm-up; v = 1",
                             .domain = OneChunk,
                             .value = Peak}}),
    .slice_factor = BalanceFactors,
});

}  // namespace
}  // namespace pipewright::seq1f1b
