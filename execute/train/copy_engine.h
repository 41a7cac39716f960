// Copies beside compute: one thread a direction, first in first out, as the
// copy engines of a GPU are. The work that it is given may use the device on a
// stream that is the engine's alone.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "absl/status/status.h"

namespace pipewright {

class CopyEngine {
 public:
  enum Direction { kToHost = 0, kToDevice = 1 };
  using Copy = std::function<absl::Status()>;
  using Ended = std::function<void(absl::Status)>;

  // Ends what has been given first.
  CopyEngine() = default;
  CopyEngine(const CopyEngine&) = delete;

  // `ended` is told on the thread what `copy` gives, or what it throws as an
  // error. An exception of `ended` is lost: the waiting thread has a time-out.
  void Start(Direction direction, Copy copy, Ended ended);

 private:
  struct Given {
    Copy copy;
    Ended ended;
  };
  class Lane {
   public:
    Lane() : thread_([this] { Run(); }) {}
    ~Lane();
    void Start(Given given);

   private:
    void Run();

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Given> waiting_;
    bool stops_ = false;
    std::thread thread_;
  };

  std::array<Lane, 2> lanes_;
};

}  // namespace pipewright
