// A clock for parts of an EventRun that are built alone: it keeps what it is
// asked for, and lets no time pass.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/engine/event_timers.h"

namespace pipewright {

class EventCalls : public EventTransport {
 public:
  struct Timer {
    double date_s = 0;
    uint64_t code = 0;
    EventKind kind() const { return EventTimers::KindOf(code); }
    uint32_t index() const { return EventTimers::IndexOf(code); }
    uint32_t version() const { return EventTimers::VersionOf(code); }
  };
  struct Flow {
    int source = 0;
    double bytes = 0;
    double start_s = 0;
    uint32_t transfer = 0;
  };

  EventCalls() { timers.Attach(this); }
  void At(double date_s, uint64_t code) override {
    set.push_back({date_s, code});
  }
  void StartFlow(int source, double bytes, double now_s,
                 uint32_t transfer) override {
    flows.push_back({source, bytes, now_s, transfer});
  }
  void Stop() override { stopped = true; }

  EventTimers timers;
  std::vector<Timer> set;
  std::vector<Flow> flows;
  bool stopped = false;
};

}  // namespace pipewright
