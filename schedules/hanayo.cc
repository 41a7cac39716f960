// Hanayo: one pipeline in waves; the stages walk to and fro over the ranks, w
// times with 2w chunks a rank. The placement is the paper's (as remembered);
// the order is a RECONSTRUCTION, for no reference order was at hand: see
// sim/schedule/wave_order.h.
#include <algorithm>
#include <utility>

#include "sim/base/nearest.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/wave_order.h"

namespace pipewright::hanayo {
namespace {

constexpr char kName[] = "hanayo";

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  if (params.vpp % 2 != 0) {
    return BadSize(
        "strategy.vpp", params.vpp, [](int vpp) { return vpp % 2 == 0; },
        "schedule hanayo: 2w chunks a rank for w waves");
  }
  const Placement placement = Placement::Wave(params.pp, params.vpp);
  ScheduleBuilder builder(kName, placement, params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.vpp * params.microbatches);
  }
  // A microbatch in flight takes at most one unit of memory on a rank.
  const double limit = params.max_activations.value_or(params.microbatches);
  const double in_flight = std::clamp(limit, 1.0, 1.0 * params.microbatches);
  AddWaveOrder(placement, params.microbatches, static_cast<int>(in_flight),
               builder);
  return std::move(builder).Finish();
}

bool IsOneWave(const ScheduleParams& params) {
  return params.vpp == 2 && params.microbatches >= 2 * params.pp &&
         !params.max_activations.has_value() &&
         params.costs.equal_without_hop();
}

// No order of these stages can save this: the last rank waits for its first
// forward, and after its last backward the others still have to run theirs.
double LeastBubble(const ScheduleParams& params, int) {
  return (params.pp - 1) * params.costs.work() / params.vpp;
}

const RegisterSchedule kRow({
    .name = kName,
    .summary = "waves over the ranks, 2w chunks a rank for w waves (--vpp 2w); "
               "order reconstructed",
    .source = "placement of Hanayo, arXiv 2308.15762; the order is a "
              "reconstruction: list scheduling with B+W = 2F",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kBubbleGlobal,
             .formula = "(p-1)(F+B+W)/(2w)",
             .source = "lower bound of any order; met in replays by w = 1, "
                       "m >= 2p, F = B = W, no hops",
             .domain = IsOneWave,
             .value = LeastBubble},
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "min(m, (3p-1)/2)",
             .source = "counted in our orders, w = 1",
             .domain =
                 [](const ScheduleParams& params) { return params.vpp == 2; },
             .value = [](const ScheduleParams& params, int) -> double {
               return std::min(1.0 * params.microbatches,
                               (3 * params.pp - 1) / 2.0);
             }},
        },
});

}  // namespace
}  // namespace pipewright::hanayo
