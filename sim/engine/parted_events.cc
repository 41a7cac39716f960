#include "sim/engine/parted_events.h"

#include <algorithm>
#include <utility>

namespace pipewright {
namespace {

constexpr int64_t kEventsOfDevice = 16;

struct Timer {
  double date_s;
  uint64_t code;
};

// All timers of `queue`, in their order.
void TakeAll(TimerQueue& queue, std::vector<Timer>* timers) {
  while (!queue.empty()) {
    const double date_s = queue.next_s();
    timers->push_back({date_s, queue.Pop()});
  }
}

}  // namespace

PartedEvents::PartedEvents(const Program& program, EventRun* run)
    : run_(run),
      of_parts_(run->num_parts() == 1 ? 0 : run->num_parts()),
      least_events_(kEventsOfDevice * program.pp() * program.replicas),
      wait_(least_events_) {
  if (program.network.cluster == nullptr) return;
  links_.emplace(*program.network.cluster, run->plans(), run->pools());
}

void PartedEvents::Split(double now_s) {
  if (links_) {
    links_->NextEnd(now_s);  // rates of what has just started
    links_->Split(run_->num_parts(), [this](uint32_t source) {
      return run_->PartOfSource(static_cast<int>(source));
    });
  }
  std::vector<Timer> timers;
  TakeAll(timers_, &timers);
  for (const Timer& timer : timers) {
    of_parts_[run_->PartOf(timer.code)].Push(timer.date_s, timer.code);
  }
}

void PartedEvents::Merge() {
  if (links_) links_->Merge();
  std::vector<Timer> timers;
  for (TimerQueue& queue : of_parts_) TakeAll(queue, &timers);
  std::stable_sort(timers.begin(), timers.end(),
                   [](const Timer& one, const Timer& other) {
                     return one.date_s < other.date_s;
                   });
  for (const Timer& timer : timers) timers_.Push(timer.date_s, timer.code);
}

void PartedEvents::Enter(int part) {
  std::swap(timers_, of_parts_[part]);
  if (links_) links_->Swap(part);
}

void PartedEvents::Leave(int part) { Enter(part); }

}  // namespace pipewright
