// V-Half: the building block with lifespans of three slots a rank, half of
// 1F1B's activations.
#include <array>
#include <vector>

#include "schedules/v_family.h"

namespace pipewright::v_half {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  const int pp = params.pp;
  const int gap = pp % 2 == 0 ? 3 : 0;
  std::vector<std::array<int, 4>> block;
  for (int rank = 0; rank < pp; ++rank) {
    block.push_back({2 * rank, 3 * pp - 2 - rank, 3 * pp - 1 + gap + 2 * rank,
                     6 * pp - 2 + gap - rank});
  }
  return BuildGreedyV("v-half", params, block);
}

double Peak(const ScheduleParams& params, int) {
  const int peak = (params.pp + 2) / 2;
  return peak;
}

bool AnySize(const ScheduleParams&) { return true; }

// Every rank holds as much as the fullest one.
bool Level(const ScheduleParams& params) {
  return params.microbatches >= 2 * params.pp &&
         params.costs.held_until_weight == 1 && !params.costs.given;
}

bool EqualPasses(const ScheduleParams& params) {
  return params.pp >= 3 && params.microbatches >= 2 * params.pp &&
         params.costs.equal_without_hop();
}

double Bubble(const ScheduleParams& params, int rank) {
  const double slots = 6 * params.pp - 3 * (2 * Peak(params, rank)) - 1;
  return slots * params.costs.forward / 2;
}

const RegisterSchedule kRow({
    .name = "v-half",
    .summary = "V placement, split backward, half of 1F1B's memory",
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
             .formula = "floor((p+2)/2) M",
             .source = "arXiv 2405.15362, table 1, with what its rounding "
                       "leaves",
             .domain = AnySize,
             .value = Peak},
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "floor((p+2)/2) M on every rank",
             .source = "the same; m >= 2p, all held until W",
             .domain = Level,
             .value = Peak},
            {.metric = Claim::Metric::kBubblePerRank,
             .sense = Claim::Sense::kUpperBound,
             .formula = "6p-3k-1 slots of F/2, k the peak in chunks",
             .source = "arXiv 2405.15362, figure 13; F = B = W, c = 0, p >= "
                       "3, m >= 2p",
             .domain = EqualPasses,
             .value = Bubble},
        },
});

}  // namespace
}  // namespace pipewright::v_half
