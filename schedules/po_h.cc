// PO-H: chunks interleaved microbatch by microbatch, so that those of the
// first chunk live longest; PipeOffload then offloads the first half of the
// chunks. This is the order alone: it holds no O and no L yet.
#include "schedules/group_interleaved.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildGroupInterleaved("po-h", params, 1);
}

const RegisterSchedule kRow({
    .name = "po-h",
    .summary = "uniform repeating of PipeOffload's PO-H, without the offload",
    .source =
        "PipeOffload, arXiv 2503.01328, section 3; order of the authors' "
        "implementation. What is offloaded (the first half of the chunks) is "
        "not in it",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .claims = {UniformPeak()},
});

}  // namespace
}  // namespace pipewright
