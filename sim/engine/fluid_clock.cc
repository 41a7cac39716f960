#include "sim/engine/fluid_clock.h"

#include <cstdint>
#include <limits>

#include "sim/engine/event_run.h"
#include "sim/engine/parted_events.h"

namespace pipewright {
namespace {

// Timers; enough for memory to answer in the meantime.
constexpr int kLookAhead = 8;

// Timers in the order of their dates, then of their setting; those of a date
// before the flows that end then, as SimGrid has it.
class FluidClock : public EventTransport {
 public:
  FluidClock(const Program& program, EventRun* run)
      : run_(run), events_(program, run) {}

  void At(double date_s, uint64_t code) override {
    events_.timers().Push(date_s, code);
  }
  void StartFlow(int source, double bytes, double now_s,
                 uint32_t transfer) override {
    events_.links()->Start(now_s, source, bytes, transfer);
  }
  void Stop() override { stopped_ = true; }

  void Run() {
    double now_s = 0;
    while (!stopped_) {
      events_.RunApart(now_s, [this](double date_s) { Call(date_s); });
      now_s = events_.NextDate(now_s);
      if (now_s == std::numeric_limits<double>::infinity()) return;
      Call(now_s);
    }
  }

 private:
  void Call(double now_s) {
    TimerQueue& timers = events_.timers();
    if (timers.next_s() <= now_s) {
      timers.LookAhead(kLookAhead,
                       [this](uint64_t code) { run_->Expect(code); });
      return run_->OnTimer(timers.Pop(), now_s);
    }
    uint32_t transfer = 0;
    while (events_.links()->TakeEnded(now_s, &transfer)) {
      run_->OnFlowEnd(transfer, now_s);
    }
  }

  EventRun* run_;
  PartedEvents events_;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<RunSummary> RunOnFluidClock(const Program& program,
                                           const EngineOptions& options) {
  return TryOnFluidClock(program, options, EventTrial());
}

absl::StatusOr<RunSummary> TryOnFluidClock(const Program& program,
                                           const EngineOptions& options,
                                           const EventTrial& trial) {
  EventRun run(program, options, trial);
  FluidClock clock(program, &run);
  run.Launch(&clock);
  clock.Run();
  return run.Finish();
}

absl::StatusOr<RunSummary> RunTimed(const Program& program,
                                    const EngineOptions& options) {
  EngineOptions alone = options;
  alone.share_links = false;
  return RunOnFluidClock(program, alone);
}

}  // namespace pipewright
