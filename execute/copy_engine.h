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

namespace pipewright {

class CopyEngine {
 public:
  enum Direction { kToHost = 0, kToDevice = 1 };

  CopyEngine();
  // Ends what has been given first.
  ~CopyEngine();
  CopyEngine(const CopyEngine&) = delete;

  void Start(Direction direction, std::function<void()> copy);

 private:
  struct Lane {
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> waiting;
    bool stops = false;
    std::thread thread;
  };
  static void Run(Lane* lane);

  std::array<Lane, 2> lanes_;
};

}  // namespace pipewright
