// Durations of a rank's operations and the messages that it received, so that a
// run can be composed again without running all of it (replay.h). Seconds.
#pragma once

#include <array>
#include <vector>

#include "execute/transport/message.h"
#include "sim/program/op_kind.h"

namespace pipewright {

struct RankRecord {
  // A block of passes, or a side operation, of the compute stream.
  struct Block {
    double late_s = 0;  // from when it could have begun until it did
    double first_s = 0;
    double second_s = 0;  // for the other part of a pair (X&Y)
  };
  std::vector<Block> compute;  // in order
  // Copies, and side operations that are the rank's own work, of the streams
  // beside compute, in the order of each.
  std::array<std::vector<double>, kNumStreams> beside;
  // What came from others and carried the run on, without payloads.
  std::vector<RankMessage> messages;
};

}  // namespace pipewright
