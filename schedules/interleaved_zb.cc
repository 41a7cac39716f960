// Interleaved 1F1B with the backward split, as PyTorch runs it: a rank warms
// up by one forward less for each rank behind it, and its W lag its B by as
// many as there are ranks in front.
#include <algorithm>
#include <utility>

#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/microbatch_groups.h"
#include "sim/schedule/registry.h"

namespace pipewright::interleaved_zb {
namespace {

constexpr char kName[] = "interleaved-zb";

int64_t Units(const ScheduleParams& params) {
  return int64_t{params.vpp} * params.microbatches;
}

int64_t WarmUp(const ScheduleParams& params, int group, int rank) {
  return std::min<int64_t>(
      int64_t{params.vpp - 1} * group + params.pp - 1 - rank, Units(params));
}

void AddRank(int rank, int64_t warm_up, const UnitCursor& units,
             ScheduleBuilder& builder) {
  UnitCursor forward = units;
  UnitCursor backward = units;
  UnitCursor weight = units;
  const auto add_forward = [&] {
    builder.Add(rank, PassKind::kForward, forward.microbatch(),
                forward.chunk());
    forward.Advance();
  };
  const auto add_backward = [&](PassKind kind, UnitCursor& cursor) {
    builder.Add(rank, kind, cursor.microbatch(),
                cursor.vpp() - 1 - cursor.chunk());
    cursor.Advance();
  };
  for (int64_t unit = 0; unit < warm_up; ++unit) add_forward();
  int64_t weights = 0;
  for (int64_t step = 0; step < units.count(); ++step) {
    if (warm_up + step < units.count()) add_forward();
    add_backward(PassKind::kBackwardInput, backward);
    if (step < rank) continue;
    add_backward(PassKind::kBackwardWeight, weight);
    ++weights;
  }
  for (; weights < units.count(); ++weights) {
    add_backward(PassKind::kBackwardWeight, weight);
  }
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  PW_ASSIGN_OR_RETURN(const int group, TorchGroupSize(kName, params));
  ScheduleBuilder builder(kName, Placement::Loop(params.pp, params.vpp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, 3 * Units(params));
    const int64_t warm_up = WarmUp(params, group, rank);
    AddRank(rank, warm_up, UnitCursor(params.microbatches, params.vpp, group),
            builder);
    // PyTorch's empty time steps (torch/distributed/pipelining/schedules.py,
    // _get_1f1b_rank_ops, pytorch/pytorch 1fd7abc2f521).
    builder.AddGap(rank, 0, rank);
    if (warm_up > 0) builder.AddGap(rank, warm_up, params.pp - 1 - rank);
  }
  return std::move(builder).Finish();
}

bool Fits(const ScheduleParams& params) {
  return TorchGroupSize(kName, params).ok();
}

// If passes differ in length, steps of neighbours do not line up.
bool EqualWithoutHop(const ScheduleParams& params) {
  return params.microbatches % params.pp == 0 &&
         params.costs.equal_without_hop();
}

double Bubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  return (params.pp - 1) *
         (costs.forward + costs.backward_input - costs.backward_weight) /
         params.vpp;
}

double Peak(const ScheduleParams& params, int rank) {
  const int64_t units = Units(params);
  const int64_t warm_up = WarmUp(params, *TorchGroupSize(kName, params), rank);
  if (warm_up == units) return params.microbatches;
  const auto waiting =
      static_cast<double>(std::min<int64_t>(rank, units - warm_up - 1));
  return (warm_up + 1 + waiting * params.costs.held_until_weight) / params.vpp;
}

constexpr char kBubble[] = "(p-1)(F+B-W)/v";
constexpr char kBubbleSource[] =
    "fitted to replays of PyTorch's order; F = B = W, no hops, p | m";

const RegisterSchedule kRow({
    .name = kName,
    .summary = "interleaved 1F1B with split backward",
    .source = "PyTorch 2.14.1, ScheduleInterleavedZeroBubble; after arXiv "
              "2401.10241, section 2.2",
    .torch_name = "InterleavedZeroBubble",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .claims =
        BubbleClaims({.metric = Claim::Metric::kBubblePerRank,
                      .formula = kBubble,
                      .source = kBubbleSource,
                      .domain = EqualWithoutHop,
                      .value = Bubble},
                     {{.metric = Claim::Metric::kPeakActivations,
                       .formula = "((v-1)g+p-d + d M_W/M)/v on rank d, g = m / "
                                  "max(1, m div p); m at most",
                       .source = "derived from the warm-up and the lag of W",
                       .domain = Fits,
                       .value = Peak}}),
});

}  // namespace
}  // namespace pipewright::interleaved_zb
