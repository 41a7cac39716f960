// PO-F: chunks interleaved microbatch by microbatch, so that those of the
// first chunk live longest; all chunks wait on the host (sim/offload).
#include "schedules/group_interleaved.h"
#include "sim/schedule/registry.h"

namespace pipewright::po_f {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildGroupInterleaved("po-f", params, 1);
}

const RegisterSchedule kRow({
    .name = "po-f",
    .summary = "PipeOffload's PO-F: uniform repeating, all chunks offloaded",
    .source = "PipeOffload, arXiv 2503.01328, section 3; order of the authors' "
              "implementation, offload by a plan of our own",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 2,
    .params = {},
    .build = Build,
    .claims = {UniformPeak()},
    .offload = OffloadMode::kFull,
});

}  // namespace
}  // namespace pipewright::po_f
