// A profile as `calibrate show --json` has it, and the numbers of a split that
// the text has too. Seconds, bytes.
#pragma once

#include "sim/base/json.h"
#include "sim/profile/profile.h"

namespace pipewright {

// F, (R,) B, W back to back over the sum of the three by themselves, and the
// price of the split: (B+W) / BW. 0 where a pass is missing.
struct SplitNumbers {
  double chain = 0;
  double price = 0;
};
SplitNumbers SplitNumbersOf(const Profile& profile, const SplitEntry& split);

Json CalibrationJson(const Profile& profile);

}  // namespace pipewright
