// A thread beside a rank's own that does what it is given, first in first out:
// a copy engine in one direction, the cores of a host that step an optimizer.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/status/status.h"

namespace pipewright {

class WorkThread {
 public:
  using Work = std::function<absl::Status()>;
  using Ended = std::function<void(absl::Status)>;

  WorkThread() : thread_([this] { Run(); }) {}
  // Ends what has been given first.
  ~WorkThread();
  WorkThread(const WorkThread&) = delete;

  // `ended` is told on the thread what `work` gives, or what it throws as an
  // error. An exception of `ended` is lost: the waiting thread has a time-out.
  void Start(Work work, Ended ended);

 private:
  struct Given {
    Work work;
    Ended ended;
  };
  void Run();

  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<Given> waiting_;
  bool stops_ = false;
  std::thread thread_;
};

// Copies beside compute: one thread a direction, first in first out, as the
// copy engines of a GPU are. The work that it is given may use the device on a
// stream that is the engine's alone.
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
