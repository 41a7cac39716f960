// Ctrl-C and SIGTERM as a wish to end in good order, for verbs that compute
// with handlers in place (calibrate has a thread for them: SignalThread).
#pragma once

#include <csignal>

#include "absl/status/statusor.h"
#include "sim/config/prepare.h"

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

// Prepare; if its schedule searches for an order, a signal ends the search with
// the best so far, and a second one the process.
absl::StatusOr<PreparedRun> PrepareUntilSignal(const RunConfig& config,
                                               RunContext* context);
// kCancelled if that was so, to be said behind the report.
absl::Status SignalVerdict(const Schedule& schedule);

}  // namespace pipewright
