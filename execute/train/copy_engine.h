// Copies beside compute: one thread a direction, first in first out, as the
// copy engines of a GPU are. The work that it is given may use the device on a
// stream that is the engine's alone.
#pragma once

#include <array>
#include <utility>

#include "execute/train/work_thread.h"

namespace pipewright {

class CopyEngine {
 public:
  enum Direction { kToHost = 0, kToDevice = 1 };
  using Ended = WorkThread::Ended;

  void Start(Direction direction, WorkThread::Work copy, Ended ended) {
    lanes_[direction].Start(std::move(copy), std::move(ended));
  }

 private:
  std::array<WorkThread, 2> lanes_;
};

}  // namespace pipewright
