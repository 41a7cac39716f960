// Names what O and L move, and says who needs it.
#pragma once

#include <cstdint>

#include "sim/schedule/pass.h"

namespace pipewright {

// The same for all kinds of one (replica, chunk, slice, microbatch), unique
// on a rank.
constexpr uint64_t ActivationKey(Pass pass) {
  return Pass(PassKind::kForward, pass.microbatch(), pass.chunk(), pass.slice(),
              pass.direction())
      .bits();
}

// True for a pass that waits for the load of its activations: a backward, or
// the R in front of it.
constexpr bool ReadsActivations(PassKind kind) {
  return IsBackward(kind) || kind == PassKind::kRecompute;
}

}  // namespace pipewright
