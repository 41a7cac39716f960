// V-Min: the building block with the shortest lifespans, a third of 1F1B's
// activations.
//
// Where F, B and W differ its block stalls: a microbatch takes 3 max(F, B) and
// 4 hops, 6 over many ranks, instead of F + B + W (why: v_launch.h). Planned
// with costs it stalls less, but a bound of its memory stays: floor((p+4)/3)
// microbatches are no room for less than ((2p+1)(F+B)/2 + W + 4(p-1) hops) /
// (2 floor((p+4)/3)) each, more than F + B + W for many ranks or short W.
// Periods over F + B + W at the 28.3B costs of arXiv 2401.10241, table 9:
//
//   p        4     5     6     7     8     11    16    32
//   block    1.160 1.160 1.175 1.175 1.175 1.179 1.184 1.186
//   planned  1.160 1.000 1.114 1.175 1.088 1.113 1.184 1.176
//   bound    1.000 1.000 1.000 1.013 1.000 1.000 1.096 1.072
#include <array>
#include <vector>

#include "schedules/v_family.h"

namespace pipewright::v_min {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  const int pp = params.pp;
  const int gap = pp % 3 == 0 ? 2 : 0;
  std::vector<std::array<int, 4>> block;
  for (int rank = 0; rank < pp; ++rank) {
    block.push_back({rank, 2 * pp - 1 - rank, 2 * pp + gap + rank,
                     4 * pp + gap - 1 - rank});
  }
  return BuildGreedyV("v-min", params, block);
}

double Peak(const ScheduleParams& params, int) {
  const int peak = (params.pp + 4) / 3;
  return peak;
}

bool AnySize(const ScheduleParams&) { return true; }

// Every rank holds as much as the fullest one.
bool Level(const ScheduleParams& params) {
  return params.pp % 3 != 2 && params.microbatches >= 2 * params.pp &&
         params.costs.held_until_weight == 1 && !params.costs.given;
}

bool EqualPasses(const ScheduleParams& params) {
  return params.pp >= 2 && params.microbatches > params.pp &&
         params.costs.equal_without_hop();
}

double Bubble(const ScheduleParams& params, int) {
  const int slots = 4 * params.pp - (params.pp % 3 == 0 ? 7 : 5);
  return slots * params.costs.forward / 2;
}

const RegisterSchedule kRow({
    .name = "v-min",
    .summary = "V placement, split backward, a third of 1F1B's memory; stalls "
               "where F, B and W differ, less where planned with costs",
    .source = "Pipeline Parallelism with Controllable Memory, arXiv "
              "2405.15362, section 4; order of the authors' implementation",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {VPlanParam()},
    .build = Build,
    .placement = WavePlacement,
    .claims =
        {
            {.metric = Claim::Metric::kPeakActivations,
             .sense = Claim::Sense::kUpperBound,
             .formula = "floor((p+4)/3) M",
             .source = "arXiv 2405.15362, table 1, with what its rounding "
                       "leaves",
             .domain = AnySize,
             .value = Peak},
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "floor((p+4)/3) M on every rank",
             .source = "the same; p mod 3 is not 2, m >= 2p, all held until W",
             .domain = Level,
             .value = Peak},
            {.metric = Claim::Metric::kBubblePerRank,
             .sense = Claim::Sense::kUpperBound,
             .formula = "4p-5 slots of F/2, 4p-7 where 3 divides p",
             .source = "fitted to replays (11, 27, 59 slots at p = 4, 8, 16); "
                       "F = B = W, c = 0, m > p",
             .domain = EqualPasses,
             .value = Bubble},
        },
});

}  // namespace
}  // namespace pipewright::v_min
