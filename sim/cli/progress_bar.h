// A line on a terminal that is drawn over and over, and one that says how far a
// long run is and what it will still take. Nothing where standard error is no
// terminal or where TERM is "dumb"; it wipes itself out at the end, also where
// a forked child has drawn it and died.
#pragma once

#include <atomic>
#include <chrono>
#include <string>

#include "absl/strings/string_view.h"
#include "sim/engine/engine.h"

namespace pipewright {

class TerminalLine {
 public:
  // `wait`: before it is drawn first.
  explicit TerminalLine(std::chrono::milliseconds wait);
  ~TerminalLine();
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;
  // Is it time to draw? At most ten times a second.
  bool IsDue() const { return drawn_ != nullptr && Clock::now() >= next_; }
  // As much of it as the terminal is wide.
  void Draw(const std::string& text);
  void Wipe();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point next_;
  std::atomic<bool>* drawn_ = nullptr;  // children share it; null: not shown
};

class ProgressBar : public Progress {
 public:
  // Draws on standard error, a second from now on.
  ProgressBar();
  void At(double part) override { At(part, ""); }
  // `doing`: what stands behind it, "12 of 30 points".
  void At(double part, absl::string_view doing);
  void Wipe() { line_.Wipe(); }

  // "[#####.....] 50 %, about 3 s left: DOING", without an end of line.
  static std::string Line(double part, double elapsed_s,
                          absl::string_view doing = "");

 private:
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin_;
  TerminalLine line_;
};

}  // namespace pipewright
