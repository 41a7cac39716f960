#include "schedules/unflushed.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/schedule/builder.h"

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

}  // namespace

absl::StatusOr<Schedule> BuildUnflushed(absl::string_view name,
                                        const ScheduleParams& params,
                                        int update_every,
                                        absl::string_view reason) {
  PW_RETURN_IF_ERROR(RequireOnly(name, "strategy.vpp", params.vpp, 1));
  PW_RETURN_IF_ERROR(RequireOnly(name, "strategy.slices", params.slices, 1));
  if (params.microbatches < params.pp) {
    return BadValue("strategy.microbatches", absl::StrCat(params.microbatches),
                    absl::StrCat("at least ", params.pp, " (pp, ", reason,
                                 "; schedule ", name, ")"));
  }
  ScheduleBuilder builder(std::string(name), Placement::Plain(params.pp),
                          params.microbatches);
  for (int rank = 0; rank < params.pp; ++rank) {
    builder.Reserve(rank, int64_t{2} * params.microbatches);
    AddRank(params.pp, rank, params.microbatches, builder);
  }
  Schedule schedule = std::move(builder).Finish();
  schedule.update_every = update_every;
  return schedule;
}

Claim UnflushedPeak(std::string source) {
  return {.metric = Claim::Metric::kPeakActivations,
          .formula = "p-d on rank d",
          .source = std::move(source),
          .domain = [](const ScheduleParams&) { return true; },
          .value = [](const ScheduleParams& params, int rank) -> double {
            return params.pp - rank;
          }};
}

}  // namespace pipewright
