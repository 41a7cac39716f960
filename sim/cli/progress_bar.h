// A line on a terminal that says how far a long run is and what it will still
// take. Nothing where the file is no terminal, where TERM is "dumb", or before
// two seconds are over; it wipes itself out at the end.
#pragma once

#include <chrono>
#include <string>

#include "sim/base/progress.h"

namespace pipewright {

class ProgressBar : public Progress {
 public:
  // Of standard error.
  ProgressBar();
  ~ProgressBar() override { Wipe(); }
  void At(double part) override;

  // "[#####.....] 50 %, about 3 s left", without an end of line.
  static std::string Line(double part, double elapsed_s);

 private:
  using Clock = std::chrono::steady_clock;
  void Wipe();

  const bool shown_;  // there is somebody to see it
  const Clock::time_point begin_;
  Clock::time_point next_;  // when it is drawn again
  bool drawn_ = false;
};

}  // namespace pipewright
