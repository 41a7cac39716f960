// A line on a terminal that says how far a long run is and what it will still
// take. Nothing where the file is no terminal, where TERM is "dumb", or before
// two seconds are over; it wipes itself out at the end, also where a forked
// child has drawn it and died.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "sim/engine/engine.h"

namespace pipewright {

class ProgressBar : public Progress {
 public:
  // Draws on standard error.
  ProgressBar();
  ~ProgressBar() override;
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  void At(double part) override;

  // "[#####.....] 50 %, about 3 s left", without an end of line.
  static std::string Line(double part, double elapsed_s);

 private:
  using Clock = std::chrono::steady_clock;
  void Wipe();

  const Clock::time_point begin_;
  Clock::time_point next_;              // when it is drawn again
  std::atomic<bool>* drawn_ = nullptr;  // children share it; null: not shown
};

}  // namespace pipewright
