// PipeDream-2BW: 1F1B that is never flushed. The microbatches of an iteration
// are one group, whose gradients make one step of every rank by itself; since
// the first forwards of a group run before the step of the group before, a
// group uses the weights of the step before that, and a rank holds two
// versions. A reconstruction from the paper's abstract.
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

void AddRank(int pp, int rank, int microbatches, ScheduleBuilder& builder) {
  const int ahead = pp - 1 - rank;
  for (int unit = 0; unit < microbatches + ahead; ++unit) {
    if (unit < microbatches) builder.Add(rank, PassKind::kForward, unit);
    if (unit >= ahead) {
      builder.Add(rank, PassKind::kBackwardFull, unit - ahead);
    }
  }
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  constexpr char kName[] = "pipedream-2bw";
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  if (params.microbatches < params.pp) {
    return BadValue("strategy.microbatches", absl::StrCat(params.microbatches),
                    absl::StrCat("at least ", params.pp,
                                 " (pp), so that two versions of "
                                 "the weights are enough (schedule ",
                                 kName, ")"));
  }
  ScheduleBuilder builder(kName, Placement::Plain(params.pp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.microbatches);
    AddRank(params.pp, rank, params.microbatches, builder);
  }
  Schedule schedule = std::move(builder).Finish();
  schedule.update_every = params.microbatches;
  return schedule;
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
    .claims =
        {
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "p-d on rank d",
             .source = "1F1B (arXiv 2006.09503, section 3.1)",
             .domain = [](const ScheduleParams&) { return true; },
             .value = [](const ScheduleParams& params, int rank) -> double {
               return params.pp - rank;
             }},
        },
});

}  // namespace
}  // namespace pipewright
