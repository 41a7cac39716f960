// V-Min: the building block with the shortest lifespans, a third of 1F1B's
// activations.
#include <array>
#include <vector>

#include "schedules/v_family.h"

namespace pipewright {
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

const RegisterSchedule kRow({
    .name = "v-min",
    .summary = "V placement, split backward, a third of 1F1B's memory",
    .source = "Pipeline Parallelism with Controllable Memory, arXiv "
              "2405.15362, section 4; order of the authors' implementation",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {VPlanParam()},
    .build = Build,
    .claims = {},
});

}  // namespace
}  // namespace pipewright
