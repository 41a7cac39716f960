#include "sim/engine/timed_engine.h"

#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "sim/base/check.h"
#include "sim/engine/event_run.h"

namespace pipewright {
namespace {

// Timers in the order of their dates, then of their setting.
class Clock : public EventTransport {
 public:
  explicit Clock(EventRun* run) : run_(run) {}

  void At(double date_s, uint64_t code) override {
    timers_.push({date_s, next_++, code});
  }
  void StartFlow(int, double, double, uint32_t) override { PW_CHECK(false); }
  void Stop() override { stopped_ = true; }

  void Run() {
    while (!stopped_ && !timers_.empty()) {
      const uint64_t code = timers_.top().code;
      timers_.pop();
      run_->OnTimer(code);
    }
  }

 private:
  struct Timer {
    double date_s;
    uint64_t number;
    uint64_t code;
    // The queue yields the largest.
    bool operator<(const Timer& other) const {
      return date_s != other.date_s ? date_s > other.date_s
                                    : number > other.number;
    }
  };

  EventRun* run_;
  std::priority_queue<Timer> timers_;
  uint64_t next_ = 0;
  bool stopped_ = false;
};

}  // namespace

absl::StatusOr<RunSummary> RunTimed(const Program& program,
                                    const EngineOptions& options) {
  EngineOptions alone = options;
  alone.share_links = false;
  EventRun run(program, alone);
  Clock clock(&run);
  run.Launch(&clock);
  clock.Run();
  return run.Finish();
}

}  // namespace pipewright
