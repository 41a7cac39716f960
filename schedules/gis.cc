// GIS: chunks interleaved in groups of pp microbatches, B and W side by side;
// the activations of 1F1B at a smaller bubble.
#include <algorithm>

#include "schedules/group_interleaved.h"
#include "sim/schedule/registry.h"

namespace pipewright::gis {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildGroupInterleaved("gis", params, params.pp);
}

// In steady state a hop hides behind the passes of a rank.
bool WholeGroups(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  return params.pp >= 2 && params.microbatches % params.pp == 0 &&
         2 * params.vpp * costs.hop <=
             std::min(
                 {costs.forward, costs.backward_input, costs.backward_weight});
}

double Bubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  return (params.pp - 1) * (costs.forward + costs.backward_input) / params.vpp +
         ((params.vpp + 1.0) * params.pp - 2) * costs.hop;
}

constexpr char kBubble[] = "(p-1)(F+B)/v + ((v+1)p-2)c";
constexpr char kSource[] =
    "PipeOffload, arXiv 2503.01328, table 1; hops c fitted to replays; p | m, "
    "2vc <= min(F, B, W)";

const RegisterSchedule kRow({
    .name = "gis",
    .summary = "chunks in groups of pp microbatches, memory of 1F1B",
    .source = "PipeOffload, arXiv 2503.01328, section 3; order of the authors' "
              "implementation",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .claims = BubbleClaims(
        {.metric = Claim::Metric::kBubblePerRank,
         .formula = kBubble,
         .source = kSource,
         .domain = WholeGroups,
         .value = Bubble},
        {{.metric = Claim::Metric::kPeakActivations,
          .sense = Claim::Sense::kUpperBound,
          .formula = "min(p, m)",
          .source = "PipeOffload, arXiv 2503.01328, table 1",
          .domain = [](const ScheduleParams&) { return true; },
          .value = [](const ScheduleParams& params, int) -> double {
            return std::min(params.pp, params.microbatches);
          }}}),
});

}  // namespace
}  // namespace pipewright::gis
