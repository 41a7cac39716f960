// When the operations of a hook have ended, in the order of their issue: what
// the blocks that wait for them ask.
#pragma once

#include <algorithm>
#include <cstdint>

#include "sim/base/fifo.h"

namespace pipewright {

class HookEnds {
 public:
  // The operations of one stream end in order, so the times never fall.
  void Push(double end_s) { ends_s_.push_back(end_s); }

  // Raises *earliest_s to the end of the first `count` since the begin. False
  // when one of them has not ended. Counts never fall.
  bool Await(int64_t count, double* earliest_s) {
    while (taken_ < count && !ends_s_.empty()) {
      last_s_ = ends_s_.front();
      ends_s_.pop_front();
      ++taken_;
    }
    if (taken_ < count) return false;
    *earliest_s = std::max(*earliest_s, last_s_);
    return true;
  }

 private:
  Fifo<double> ends_s_;
  int64_t taken_ = 0;
  double last_s_ = 0;
};

}  // namespace pipewright
