#include "sim/schedule/microbatch_groups.h"

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

bool Fits(int microbatches, int group, int pp) {
  return microbatches >= group &&
         (microbatches % group == 0 || microbatches % group >= pp);
}

}  // namespace

void AddInterleavedRank(int rank, int64_t warm_up, UnitCursor units,
                        ScheduleBuilder& builder) {
  UnitCursor forward = units;
  UnitCursor backward = units;
  const auto add_forward = [&] {
    builder.Add(rank, PassKind::kForward, forward.microbatch(),
                forward.chunk());
    forward.Advance();
  };
  const auto add_backward = [&] {
    builder.Add(rank, PassKind::kBackwardFull, backward.microbatch(),
                backward.vpp() - 1 - backward.chunk());
    backward.Advance();
  };
  for (int64_t unit = 0; unit < warm_up; ++unit) add_forward();
  for (int64_t unit = warm_up; unit < units.count(); ++unit) {
    add_forward();
    add_backward();
  }
  for (int64_t unit = 0; unit < warm_up; ++unit) add_backward();
}

absl::StatusOr<int> TorchGroupSize(absl::string_view schedule,
                                   const ScheduleParams& params) {
  const auto rounds = [&](int microbatches) {
    return std::max(1, microbatches / params.pp);
  };
  const auto fits = [&](int microbatches) {
    return microbatches % rounds(microbatches) == 0;
  };
  const int microbatches = params.microbatches;
  if (fits(microbatches)) return microbatches / rounds(microbatches);
  int below = microbatches;
  int above = microbatches;
  while (!fits(below)) --below;
  while (!fits(above)) ++above;
  return BadValue(
      "strategy.microbatches", absl::StrCat(microbatches),
      absl::StrCat(below, " or ", above, ", the nearest (schedule ", schedule,
                   " as in PyTorch: a multiple of microbatches div pp = ",
                   rounds(microbatches), ")"));
}

absl::Status CheckGroupSize(absl::string_view schedule,
                            const ScheduleParams& params, int group) {
  if (Fits(params.microbatches, group, params.pp)) return absl::OkStatus();
  int below = params.microbatches;
  int above = params.microbatches;
  while (below > 0 && !Fits(below, group, params.pp)) --below;
  while (!Fits(above, group, params.pp)) ++above;
  return BadValue(
      "strategy.microbatches", absl::StrCat(params.microbatches),
      absl::StrCat(below > 0 ? absl::StrCat(below, " or ") : "", above,
                   ", the nearest (schedule ", schedule, ", pp ", params.pp,
                   ", group size ", group,
                   ": microbatches mod group size is 0 or at least pp)"));
}

}  // namespace pipewright
