// Times of passes that follow passes of other kinds. A calibration times each
// kind of pass among its own, and chains of different ones; a step runs them
// mixed, as chains do, with other code and other data between two of a kind.
#pragma once

#include "sim/profile/profile.h"

namespace pipewright {

// Time of a chain over the sum of its passes timed each among its own kind; 1
// where no chain was measured.
struct BackToBack {
  double split = 1;  // F, B, W
  double fused = 1;  // F, BW
};

// Takes the chains (with R in front of the backward if `recompute`) of the
// layer and shape of `entry`, or of its shape that is nearest in tokens.
BackToBack BackToBackOf(const Profile& profile, const PassEntry& entry,
                        bool recompute);

}  // namespace pipewright
