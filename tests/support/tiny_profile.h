// A profile of gpt-tiny with round times, made up.
#pragma once

#include "sim/profile/profile.h"

namespace pipewright::testing {

// Twenty samples close to `micros` microseconds.
Distribution Around(double micros);

// F 1000, B 1200, W 900, BW 2000, R 1000 us a layer.
Profile TinyProfile();

}  // namespace pipewright::testing
