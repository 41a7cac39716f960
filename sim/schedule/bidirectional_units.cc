#include "sim/schedule/bidirectional_units.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "sim/base/nearest.h"
#include "sim/base/status.h"

namespace pipewright {

absl::Status CheckBidirectionalUnits(absl::string_view schedule,
                                     const ScheduleParams& params, int vpp) {
  PW_RETURN_IF_ERROR(RequireOnly(schedule, "strategy.vpp", params.vpp, vpp));
  PW_RETURN_IF_ERROR(
      RequireOnly(schedule, "strategy.slices", params.slices, 1));
  const int microbatches = params.microbatches;
  if (params.pp % 2 != 0) {
    // No pp fits an odd number of microbatches; the next message is about that.
    return BadSize(
        "strategy.pp", params.pp,
        [&](int pp) {
          return pp % 2 == 0 &&
                 (microbatches % 2 != 0 || microbatches % pp == 0);
        },
        absl::StrCat("schedule ", schedule,
                     ": even, and microbatches a multiple of it"));
  }
  if (microbatches % params.pp != 0) {
    return BadSize(
        "strategy.microbatches", microbatches,
        [&](int candidate) { return candidate % params.pp == 0; },
        absl::StrCat("schedule ", schedule,
                     ": a multiple of pp = ", params.pp));
  }
  return absl::OkStatus();
}

void AddVUnit(PassKind kind, int own, int ahead, int half, int unit,
              RankOrder* order) {
  const auto add = [&](int direction, int chunk, int index) {
    order->push_back(Pass(kind, unit * half + index, chunk, 0, direction));
  };
  const int first = kind == PassKind::kForward ? 0 : 1;
  const int second = 1 - first;
  const int other = 1 - own;
  const int rest = half - ahead;
  for (int index = 0; index < ahead; ++index) add(own, first, index);
  for (int index = 0; index < rest; ++index) {
    add(other, first, index);
    add(own, first, ahead + index);
  }
  for (int index = 0; index < ahead; ++index) {
    add(other, first, rest + index);
    add(other, second, index);
  }
  for (int index = 0; index < rest; ++index) {
    add(own, second, index);
    add(other, second, ahead + index);
  }
  for (int index = rest; index < half; ++index) add(own, second, index);
}

double UnitsBubble(const ScheduleParams& params) {
  const double forward = params.costs.forward;
  const double backward = params.costs.work() - forward;
  const double joints = params.microbatches / params.pp - 1;
  return (params.pp - 2) *
         (std::max(forward, backward) + joints * std::abs(backward - forward));
}

}  // namespace pipewright
