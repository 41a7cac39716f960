#include "sim/schedule/schedule.h"

#include "absl/strings/str_cat.h"

namespace pipewright {

int64_t Schedule::num_passes() const {
  int64_t passes = 0;
  for (const auto& rank_order : orders) {
    passes += static_cast<int64_t>(rank_order->size());
  }
  return passes;
}

std::string PassToString(const Schedule& schedule, Pass pass) {
  std::string text;
  if (schedule.replicas > 1) text += pass.replica() == 0 ? 'a' : 'b';
  absl::StrAppend(&text, PassKindName(pass.kind()), pass.microbatch());
  if (schedule.vpp() > 1) absl::StrAppend(&text, ".", pass.chunk());
  if (schedule.slices > 1) absl::StrAppend(&text, "s", pass.slice());
  return text;
}

}  // namespace pipewright
