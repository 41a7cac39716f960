#include "sim/schedule/schedule.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {

absl::string_view BackwardRuleName(BackwardRule rule) {
  constexpr absl::string_view kNames[] = {"chain", "local", "none"};
  return kNames[static_cast<int>(rule)];
}

bool HasKind(const RankOrder& order, PassKind kind) {
  return std::any_of(order.begin(), order.end(),
                     [kind](Pass pass) { return pass.kind() == kind; });
}

int64_t Schedule::num_passes() const {
  int64_t passes = 0;
  for (const auto& rank_order : orders) {
    passes += static_cast<int64_t>(rank_order->size());
  }
  return passes;
}

bool Schedule::Has(PassKind kind) const {
  return std::any_of(orders.begin(), orders.end(), [kind](const auto& order) {
    return HasKind(*order, kind);
  });
}

std::string PassToString(const Schedule& schedule, Pass pass) {
  std::string text;
  if (schedule.directions > 1) text += pass.direction() == 0 ? 'a' : 'b';
  absl::StrAppend(&text, PassKindName(pass.kind()), pass.microbatch());
  if (schedule.vpp() > 1) absl::StrAppend(&text, ".", pass.chunk());
  if (schedule.slices > 1) absl::StrAppend(&text, "s", pass.slice());
  return text;
}

absl::Status AtOrder(const Schedule& schedule, int rank,
                     const absl::Status& status) {
  if (schedule.lines.empty()) return status;
  return InFile(schedule.name, schedule.lines[rank], status);
}

}  // namespace pipewright
