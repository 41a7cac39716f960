// What has moved between two orders of the same passes.
#pragma once

#include <array>
#include <cstdint>

#include "sim/schedule/pass.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

struct KindMoves {
  int64_t earlier = 0;
  int64_t later = 0;
  int64_t more = 0;   // passes that only the second order has
  int64_t fewer = 0;  // and only the first
};

struct OrderMoves {
  std::array<KindMoves, kNumPassKinds> kinds;  // [PassKind]
  int64_t passes = 0;                          // of the second order
  int stages_elsewhere = 0;                    // whose passes are not compared
};

// Rank by rank: the heaviest part of both orders that runs in one sequence has
// stayed; the rest has moved, ahead of passes that have stayed or behind them.
// As few passes as possible have moved; of as few, W rather than F, and F
// rather than B. Both have the same number of ranks and stages.
OrderMoves CompareOrders(const Schedule& from, const Schedule& to);

}  // namespace pipewright
