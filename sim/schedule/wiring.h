// The channels of a schedule: which passes wait for which on another rank. F of
// a stage feeds F of the next one; its backward feeds the backward of the one
// before (BackwardRule::kChain). Two stages on one rank need no channel: the
// rank's order is enough.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/schedule/schedule.h"

namespace pipewright {

struct WiredChannel {
  bool gradient = false;  // from a backward; else activations of an F
  int from_rank = 0;
  int to_rank = 0;
  int stage = 0;      // the producing one
  int direction = 0;  // in a bidirectional schedule
};

struct WiredLane {
  int32_t stage = -1;  // -1: the rank has no such lane
  int32_t input = -1;  // index of a channel, -1: none
  int32_t output = -1;
};

struct Wiring {
  std::vector<WiredChannel> channels;
  std::vector<std::vector<WiredLane>> lanes;  // [rank][Pass::lane()]
};

Wiring WireSchedule(const Schedule& schedule);

}  // namespace pipewright
