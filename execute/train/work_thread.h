// A thread beside a rank's own that does what it is given, first in first out:
// a copy engine in one direction, the cores of a host that step an optimizer.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

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

}  // namespace pipewright
