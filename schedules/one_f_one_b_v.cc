// 1F1B-V: 1F1B on a V placement. The first and the last stage share a rank, so
// that no rank holds many activations for long: two thirds of 1F1B's memory.
#include <utility>

#include "schedules/one_f_one_b_v_grid.h"
#include "schedules/v_family.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright::one_f_one_b_v {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  PW_RETURN_IF_ERROR(RequireOnly("1f1b-v", "strategy.vpp", params.vpp, 2));
  PW_RETURN_IF_ERROR(
      RequireOnly("1f1b-v", "strategy.slices", params.slices, 1));
  ScheduleBuilder builder("1f1b-v", Placement::V(params.pp),
                          params.microbatches);
  AddOneFOneBV(params.pp, params.microbatches, builder);
  return std::move(builder).Finish();
}

// With 3 | p the pattern has a gap more, and a chunk more is alive.
bool NoGap(const ScheduleParams& params) { return params.pp % 3 != 0; }

bool Filled(const ScheduleParams& params) {
  return NoGap(params) && params.microbatches >= 2 * params.pp;
}

double Peak(const ScheduleParams& params, int) {
  const int peak = (2 * params.pp + 2) / 3;
  return peak;
}

bool EqualPasses(const ScheduleParams& params) {
  return NoGap(params) && params.pp >= 4 && params.microbatches >= params.pp &&
         params.costs.equal_without_hop();
}

double Bubble(const ScheduleParams& params, int) {
  const int slots =
      params.pp % 3 == 1 ? 5 * (params.pp - 1) : 5 * params.pp - 7;
  return slots * params.costs.forward / 2;
}

const RegisterSchedule kRow({
    .name = "1f1b-v",
    .summary = "1F1B on a V placement, two thirds of its memory",
    .source = "zero-bubble-pipeline-parallelism, the authors' implementation "
              "of arXiv 2405.15362, branch main",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "ceil(2p/3) M on every rank",
             .source = "peaks of the authors' implementation; 3 does not "
                       "divide p, m >= 2p",
             .domain = Filled,
             .value = Peak},
            {.metric = Claim::Metric::kBubblePerRank,
             .formula = "5(p-1) slots of F/2 for p mod 3 = 1, 5p-7 for p mod 3 "
                        "= 2",
             .source = "fitted to replays (15, 33, 75 slots at p = 4, 8, 16); "
                       "F = B = W, c = 0, p >= 4, m >= p",
             .domain = EqualPasses,
             .value = Bubble},
        },
});

}  // namespace
}  // namespace pipewright::one_f_one_b_v
