#include "sim/schedule/pass.h"

namespace pipewright {

absl::string_view PassKindName(PassKind kind) {
  static constexpr absl::string_view kNames[kNumPassKinds] = {
      "F", "B", "W", "BW", "R", "O", "L", "SYNC", "FREE"};
  return kNames[static_cast<int>(kind)];
}

}  // namespace pipewright
