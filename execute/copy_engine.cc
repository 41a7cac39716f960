#include "execute/copy_engine.h"

#include <utility>

namespace pipewright {

CopyEngine::CopyEngine() {
  for (Lane& lane : lanes_) lane.thread = std::thread(Run, &lane);
}

CopyEngine::~CopyEngine() {
  for (Lane& lane : lanes_) {
    {
      std::lock_guard lock(lane.mutex);
      lane.stops = true;
    }
    lane.wake.notify_one();
    lane.thread.join();
  }
}

void CopyEngine::Start(Direction direction, std::function<void()> copy) {
  Lane& lane = lanes_[direction];
  {
    std::lock_guard lock(lane.mutex);
    lane.waiting.push_back(std::move(copy));
  }
  lane.wake.notify_one();
}

void CopyEngine::Run(Lane* lane) {
  while (true) {
    std::function<void()> copy;
    {
      std::unique_lock lock(lane->mutex);
      lane->wake.wait(lock,
                      [lane] { return !lane->waiting.empty() || lane->stops; });
      if (lane->waiting.empty()) return;
      copy = std::move(lane->waiting.front());
      lane->waiting.pop_front();
    }
    copy();
  }
}

}  // namespace pipewright
