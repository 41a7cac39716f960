#include "sim/engine/fluid_clock.h"

#include <cstdint>
#include <limits>
#include <optional>

#include "sim/engine/event_run.h"
#include "sim/engine/fluid_links.h"
#include "sim/engine/timer_queue.h"

namespace pipewright {
namespace {

// Timers in the order of their dates, then of their setting; those of a date
// before the flows that end then, as SimGrid has it.
class FluidClock : public EventTransport {
 public:
  FluidClock(const Program& program, EventRun* run) : run_(run) {
    if (program.network.cluster == nullptr) return;
    links_.emplace(*program.network.cluster, run->plans(), run->pools());
  }

  void At(double date_s, uint64_t code) override { timers_.Push(date_s, code); }
  void StartFlow(int source, double bytes, double now_s,
                 uint32_t transfer) override {
    links_->Start(now_s, source, bytes, transfer);
  }
  void Stop() override { stopped_ = true; }

  void Run() {
    double now_s = 0;
    while (!stopped_) {
      const double flow_s = links_ ? links_->NextEnd(now_s) : kNever;
      if (!timers_.empty() && timers_.next_s() <= flow_s) {
        now_s = timers_.next_s();
        run_->OnTimer(timers_.Pop());
        continue;
      }
      if (flow_s == kNever) return;
      now_s = flow_s;
      uint32_t transfer = 0;
      while (links_->TakeEnded(now_s, &transfer)) {
        run_->OnFlowEnd(transfer, now_s);
      }
    }
  }

 private:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  EventRun* run_;
  std::optional<FluidLinks> links_;
  TimerQueue timers_;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<RunSummary> RunOnFluidClock(const Program& program,
                                           const EngineOptions& options) {
  return RunOnFluidClockSpreading(program, options, kSpreadPeers);
}

absl::StatusOr<RunSummary> RunOnFluidClockSpreading(
    const Program& program, const EngineOptions& options, int spread_peers) {
  EventRun run(program, options, spread_peers);
  FluidClock clock(program, &run);
  run.Launch(&clock);
  clock.Run();
  return run.Finish();
}

}  // namespace pipewright
