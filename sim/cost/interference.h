// How much a pass and what runs beside it on the same device slow each other
// down: the matrix of a profile, as engines ask for it. No times.
#pragma once

#include <optional>

#include "sim/profile/profile.h"
#include "sim/schedule/pass.h"

namespace pipewright {

// Parts of a pass's time that are F, B and W; they add up to 1.
struct PassMix {
  double forward = 0;
  double backward_input = 0;
  double backward_weight = 0;
};

struct Slowdown {  // time beside over time alone
  double pass = 1;
  double beside = 1;
};

struct InterferenceMatrix {
  // [F, B, W][Beside]
  Slowdown entries[3][kNumBeside];

  // Nothing where the profile has no entry; a factor that it lacks is 1.
  static std::optional<InterferenceMatrix> Of(const Profile& profile);

  // The slow-down of a mixed pass: the mean by time.
  Slowdown At(const PassMix& mix, Beside beside) const;
};

// R is F; a BW whose B and W alone take `input_s` and `weight_s` is both.
PassMix MixOf(PassKind kind, double input_s, double weight_s);

}  // namespace pipewright
