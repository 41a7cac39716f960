#include "execute/train/copy_engine.h"

#include <utility>

#include "sim/base/exceptions.h"

namespace pipewright {

void CopyEngine::Start(Direction direction, Copy copy, Ended ended) {
  lanes_[direction].Start({std::move(copy), std::move(ended)});
}

CopyEngine::Lane::~Lane() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void CopyEngine::Lane::Start(Given given) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(given));
  }
  wake_.notify_one();
}

void CopyEngine::Lane::Run() {
  while (true) {
    Given given;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !waiting_.empty() || stops_; });
      if (waiting_.empty()) return;
      given = std::move(waiting_.front());
      waiting_.pop_front();
    }
    absl::Status copied = WithoutExceptions(given.copy);
    // What it holds is gone when the end is told.
    given.copy = nullptr;
    WithoutExceptions([&] {
      given.ended(std::move(copied));
      return absl::OkStatus();
    }).IgnoreError();
  }
}

}  // namespace pipewright
