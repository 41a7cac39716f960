#include "sim/cli/stop_signals.h"

#include <atomic>
#include <optional>

#include "absl/status/status.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

// Read by threads while a handler may write it.
std::atomic<int> stop_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void TakeStop(int signal) { stop_signal = signal; }

}  // namespace

StopSignals::StopSignals(Second second) {
  stop_signal = 0;
  struct sigaction take {};
  take.sa_handler = &TakeStop;
  // Who lets the process end has nothing to wake up from a call for.
  if (second == Second::kEnds) take.sa_flags = SA_RESETHAND | SA_RESTART;
  ::sigaction(SIGINT, &take, &old_[0]);
  ::sigaction(SIGTERM, &take, &old_[1]);
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  ::sigaction(SIGXFSZ, &ignore, &old_[2]);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &old_[0], nullptr);
  ::sigaction(SIGTERM, &old_[1], nullptr);
  ::sigaction(SIGXFSZ, &old_[2], nullptr);
}

bool StopSignals::Taken() { return stop_signal != 0; }

absl::StatusOr<PreparedRun> PrepareUntilSignal(const RunConfig& config,
                                               RunContext* context) {
  std::optional<StopSignals> signals;
  const absl::StatusOr<ScheduleMatch> match =
      FindSchedule(config.schedule.name.value_or(""));
  // Who plans with the room searches; others would not ask.
  if (match.ok() && match->info->asks_for_room) {
    signals.emplace(StopSignals::Second::kEnds);
    context->StopSearchesIf(&StopSignals::Taken);
  }
  return Prepare(config, context);
}

absl::Status SignalVerdict(const Schedule& schedule) {
  if (!schedule.found || !schedule.found->is_cut) return absl::OkStatus();
  return absl::CancelledError(
      "stopped by a signal; the report has the best order that was found");
}

}  // namespace pipewright
