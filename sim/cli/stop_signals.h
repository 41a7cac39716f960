// Ctrl-C and SIGTERM as a wish to end in good order, for verbs that compute
// with handlers in place (calibrate has a thread for them: SignalThread).
#pragma once

#include <csignal>

namespace pipewright {

// While this lives the signals are noted, and a limit of the size of files is
// an error of the write, not of the process. One at a time.
class StopSignals {
 public:
  // What a second signal does: nothing more, or it ends the process at once.
  enum class Second { kNothing, kEnds };
  explicit StopSignals(Second second);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Has one come? From any thread.
  static bool Taken();

 private:
  struct sigaction old_[3];
};

}  // namespace pipewright
