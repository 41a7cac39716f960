// The timers and flows of a run, in one queue or in one of each part of its
// replicas. Parts that cannot meet before some date (EventRun::Horizon) run up
// to there one after the other: what runs then fits the cache, where thousands
// of devices do not. From there on all run by the clock again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "sim/engine/event_run.h"
#include "sim/engine/fluid_links.h"
#include "sim/engine/timer_queue.h"

namespace pipewright {

class PartedEvents {
 public:
  PartedEvents(const Program& program, EventRun* run);

  // Timers of the part that runs, or of all.
  TimerQueue& timers() { return timers_; }
  // Null: no links.
  FluidLinks* links() { return links_ ? &*links_ : nullptr; }
  // When it goes on; infinite when nothing is left. What starts at one date is
  // solved together.
  double NextDate(double now_s) {
    const double timer_s = timers_.next_s();
    if (timer_s <= now_s || !links_) return timer_s;
    return std::min(links_->NextEnd(now_s), timer_s);
  }

  // At `now_s`, when all before has happened: runs parts as far as they cannot
  // meet. `call(date)` runs what happens at that date in the part that runs.
  template <class Call>
  void RunApart(double now_s, Call call) {
    if (run_->num_parts() == 1 || run_->events() < next_try_) return;
    double from_s = now_s;
    double horizon_s = run_->Horizon(from_s);
    bool worth = horizon_s > from_s;
    if (worth) {
      Split(now_s);
      // If transfers take long, or nothing is left to happen, little happens up
      // to the horizon.
      while (worth && horizon_s > from_s) {
        const int64_t before = run_->events();
        run_->BeginApart(horizon_s);
        for (int part = 0; part < run_->num_parts(); ++part) {
          Enter(part);
          double date_s = from_s;
          while (true) {
            date_s = NextDate(date_s);
            if (!(date_s < horizon_s)) break;
            call(date_s);
          }
          Leave(part);
        }
        from_s = horizon_s;
        worth = run_->events() - before >= least_events_;
        if (worth) horizon_s = run_->Horizon(from_s);
      }
      run_->EndApart();
      Merge();
    }
    // It is tried again the later the oftener it has not been worth it.
    wait_ = worth ? least_events_ : 2 * wait_;
    next_try_ = run_->events() + wait_;
  }

 private:
  void Split(double now_s);
  void Merge();
  void Enter(int part);
  void Leave(int part);

  EventRun* const run_;
  std::optional<FluidLinks> links_;
  TimerQueue timers_;
  std::vector<TimerQueue> of_parts_;
  // To look for the horizon takes as long as some events of each device.
  const int64_t least_events_;
  int64_t wait_;
  int64_t next_try_ = 0;
};

}  // namespace pipewright
