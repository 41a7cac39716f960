// What only tests and benchmarks of an EventRun change.
#pragma once

#include "sim/engine/spread.h"

namespace pipewright {

struct EventTrial {
  // A pull or push with so many peers at once, or more, shares exactly only the
  // links that are its device's own (spread.h).
  int spread_peers = kSpreadPeers;
  // Parts that do the same run once.
  bool folds = true;
};

}  // namespace pipewright
