// GIS-H: as GIS in groups of half as many microbatches; about half of its
// activations, at a larger bubble.
#include <algorithm>

#include "schedules/group_interleaved.h"
#include "sim/schedule/registry.h"

namespace pipewright::gis_h {
namespace {

int Group(const ScheduleParams& params) { return (params.pp + 1) / 2; }

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildGroupInterleaved("gis-h", params, Group(params));
}

// Groups fill the ranks, and in steady state neither the way of a forward nor
// that of a backward, with its hops, is longer than the work of a group.
bool WholeGroups(const ScheduleParams& params) {
  const PlanCosts& costs = params.costs;
  const double hops = 2 * params.vpp * costs.hop;
  return params.pp % 2 == 0 && params.microbatches % params.pp == 0 &&
         costs.backward_weight <= costs.backward_input &&
         costs.forward + hops <= costs.backward_input + costs.backward_weight &&
         costs.backward_input + hops <= costs.forward + costs.backward_weight &&
         hops <= std::min(costs.forward, costs.backward_weight);
}

double Bubble(const ScheduleParams& params, int) {
  const PlanCosts& costs = params.costs;
  const double pair = costs.forward + costs.backward_input;
  return ((params.pp - 1) * pair + (params.vpp - 1) *
                                       (params.pp - Group(params)) *
                                       (pair - costs.backward_weight)) /
             params.vpp +
         2.0 * (params.pp * params.vpp - 1) * costs.hop;
}

double Peak(const ScheduleParams& params, int) {
  return std::min((Group(params) * (params.vpp - 1.0) + params.pp) / params.vpp,
                  1.0 * params.microbatches);
}

constexpr char kBubble[] =
    "((p-1)(F+B) + (v-1)(p-ceil(p/2))(F+B-W))/v + 2(pv-1)c";
constexpr char kSource[] =
    "PipeOffload, arXiv 2503.01328, table 1; hops c fitted to replays; p even, "
    "p | m, W <= B, 2vc <= min(F, W, B+W-F, F+W-B)";

const RegisterSchedule kRow({
    .name = "gis-h",
    .summary = "chunks in groups of pp/2 microbatches, half the memory",
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
          .formula = "min((g(v-1)+p)/v, m), g = ceil(p/2)",
          .source = "PipeOffload, arXiv 2503.01328, table 1; p even, F = B "
                    "= W",
          .domain =
              [](const ScheduleParams& params) {
                return params.pp % 2 == 0 && !params.costs.given;
              },
          .value = Peak}}),
});

}  // namespace
}  // namespace pipewright::gis_h
