#include "execute/train/work_thread.h"

#include <utility>

#include "sim/base/status.h"

namespace pipewright {

WorkThread::~WorkThread() {
  {
    std::lock_guard lock(mutex_);
    stops_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void WorkThread::Start(Work work, Ended ended) {
  {
    std::lock_guard lock(mutex_);
    waiting_.push_back({std::move(work), std::move(ended)});
  }
  wake_.notify_one();
}

void WorkThread::Run() {
  while (true) {
    Given given;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return !waiting_.empty() || stops_; });
      if (waiting_.empty()) return;
      given = std::move(waiting_.front());
      waiting_.pop_front();
    }
    absl::Status done = WithoutExceptions(given.work);
    // What it holds is gone when the end is told.
    given.work = nullptr;
    WithoutExceptions([&] {
      given.ended(std::move(done));
      return absl::OkStatus();
    }).IgnoreError();
  }
}

}  // namespace pipewright
