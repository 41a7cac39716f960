// V-Half: the building block with lifespans of three slots a rank, half of
// 1F1B's activations.
#include <array>
#include <vector>

#include "schedules/v_family.h"

namespace pipewright {
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
    .claims = {},
});

}  // namespace
}  // namespace pipewright
