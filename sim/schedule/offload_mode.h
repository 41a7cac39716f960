// How much of its activations a schedule keeps on the host: what a row of the
// registry names as its own, and a configuration may choose for any schedule.
#pragma once

#include <cstdint>

namespace pipewright {

enum class OffloadMode : uint8_t {
  kNone,
  kSelective,  // the half that lives longest, as far as copies can hide
  kFull,       // all, as far as copies can hide
};

// How copies of devices behind one PCIe switch share it.
enum class CopySharing : uint8_t {
  kTogether,  // side by side, each with its part of the bandwidth
  kInTurn,    // one after the other in each direction, each with all of it
};

}  // namespace pipewright
