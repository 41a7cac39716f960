// PipeOptim: 1F1B that is never flushed, with a step of every rank after each
// of its backwards. A forward on rank d is p-1-d steps ahead of its backward,
// so it uses weights that the optimizer's own rule predicts that many steps
// on. The paper's text counts p-1-d steps, its released code p-d (there the
// last rank predicts too); this is the text.
#include "schedules/unflushed.h"

namespace pipewright::pipeoptim {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildUnflushed("pipeoptim", params, 1,
                        "which are under way at a time");
}

const RegisterSchedule kRow({
    .name = "pipeoptim",
    .summary = "1F1B never flushed, a step a backward, predicted weights; "
               "microbatches: how many make the period that is reported",
    .source = "PipeOptim, arXiv 2312.00839, and its released code "
              "(guanleics/PipeOptim), whose last rank predicts one step more",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {},
    .build = Build,
    .claims = {UnflushedPeak(
        "1F1B with a warm-up of p-d-1 (arXiv 2312.00839)")},
});

}  // namespace
}  // namespace pipewright::pipeoptim
