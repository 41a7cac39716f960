// PO-H: chunks interleaved microbatch by microbatch, so that those of the
// first chunk live longest; the half of the chunks that lives longest waits on
// the host (sim/offload).
#include "schedules/group_interleaved.h"
#include "sim/schedule/registry.h"

namespace pipewright::po_h {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildGroupInterleaved("po-h", params, 1);
}

const RegisterSchedule kRow({
    .name = "po-h",
    .summary = "PipeOffload's PO-H: uniform repeating, half of the chunks "
               "offloaded",
    .source = "PipeOffload, arXiv 2503.01328, section 3; order of the authors' "
              "implementation, offload by a plan of our own",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .claims = {UniformPeak()},
    .offload = OffloadMode::kSelective,
});

}  // namespace
}  // namespace pipewright::po_h
