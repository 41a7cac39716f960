// PipeDream-2BW: 1F1B that is never flushed. The microbatches of an iteration
// are one group, whose gradients make one step of every rank by itself; since
// the first forwards of a group run before the step of the group before, a
// group uses the weights of the step before that, and a rank holds two
// versions. A reconstruction from the paper's abstract.
#include "schedules/unflushed.h"

namespace pipewright::pipedream_2bw {
namespace {

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  return BuildUnflushed("pipedream-2bw", params, params.microbatches,
                        "so that two versions of the weights are enough");
}

const RegisterSchedule kRow({
    .name = "pipedream-2bw",
    .summary = "1F1B never flushed, two weight versions (reconstruction); "
               "microbatches: those of one step",
    .source = "Memory-Efficient Pipeline-Parallel DNN Training, arXiv "
              "2006.09503, abstract; order and place of the step are a "
              "reconstruction",
    .torch_name = "",
    .torch_params = {},
    .default_vpp = 1,
    .params = {},
    .build = Build,
    .claims = {UnflushedPeak("1F1B (arXiv 2006.09503, section 3.1)")},
});

}  // namespace
}  // namespace pipewright::pipedream_2bw
