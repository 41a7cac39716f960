// Passes that are cut into their layers.
#pragma once

#include "sim/schedule/pass.h"

namespace pipewright {

// What the chunk number of a pass stands for where passes are cut into layers:
// this layer, of so many, of a chunk of the schedule.
struct LayerPart {
  int chunk = 0;
  int layer = 0;
  int layers = 1;

  // The first that a pass of this kind runs, and the last.
  bool IsFirst(PassKind kind) const {
    return RunsDown(kind) ? layer == layers - 1 : layer == 0;
  }
  bool IsLast(PassKind kind) const {
    return RunsDown(kind) ? layer == 0 : layer == layers - 1;
  }
  static bool RunsDown(PassKind kind) {
    return IsBackward(kind) || kind == PassKind::kBackwardWeight;
  }
};

}  // namespace pipewright
