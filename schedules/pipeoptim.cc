// PipeOptim: 1F1B that is never flushed, with a step of every rank after each
// of its backwards. A forward on rank d is p-1-d steps ahead of its backward,
// so it uses weights that the optimizer's own rule predicts that many steps
// on. The paper's text counts p-1-d steps, its released code p-d (there the
// last rank predicts too); this is the text.
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

void AddRank(int pp, int rank, int microbatches, ScheduleBuilder& builder) {
  int forward = 0;
  while (forward < pp - 1 - rank) {
    builder.Add(rank, PassKind::kForward, forward++);
  }
  for (int backward = 0; backward < microbatches; ++backward) {
    if (forward < microbatches) {
      builder.Add(rank, PassKind::kForward, forward++);
    }
    builder.Add(rank, PassKind::kBackwardFull, backward);
  }
}

absl::StatusOr<Schedule> Build(const ScheduleParams& params) {
  constexpr char kName[] = "pipeoptim";
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly(kName, "strategy.slices", params.slices, 1));
  if (params.microbatches < params.pp) {
    return BadValue("strategy.microbatches", absl::StrCat(params.microbatches),
                    absl::StrCat("at least ", params.pp,
                                 " (pp, which are under way at a time; "
                                 "schedule ",
                                 kName, ")"));
  }
  ScheduleBuilder builder(kName, Placement::Plain(params.pp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.microbatches);
    AddRank(params.pp, rank, params.microbatches, builder);
  }
  Schedule schedule = std::move(builder).Finish();
  schedule.update_every = 1;
  return schedule;
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
    .claims =
        {
            {.metric = Claim::Metric::kPeakActivations,
             .formula = "p-d on rank d",
             .source = "1F1B with a warm-up of p-d-1 (arXiv 2312.00839)",
             .domain = [](const ScheduleParams&) { return true; },
             .value = [](const ScheduleParams& params, int rank) -> double {
               return params.pp - rank;
             }},
        },
});

}  // namespace
}  // namespace pipewright
