// Names what O and L move and a backward needs.
#pragma once

#include <cstdint>

#include "sim/schedule/pass.h"

namespace pipewright {

// The same for all kinds of one (replica, chunk, slice, microbatch), unique
// on a rank.
constexpr uint64_t ActivationKey(Pass pass) {
  return Pass(PassKind::kForward, pass.microbatch(), pass.chunk(), pass.slice(),
              pass.replica())
      .bits();
}

}  // namespace pipewright
