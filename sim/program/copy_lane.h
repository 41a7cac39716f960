// One direction of copies between a device and its host, as a plan books it: a
// copy has it to itself.
#pragma once

#include <algorithm>
#include <iterator>
#include <vector>

namespace pipewright {

class CopyLane {
 public:
  // The first time from `ready_s` on at which the lane is free for `seconds`.
  double Earliest(double ready_s, double seconds) const {
    double start_s = ready_s;
    auto next = std::upper_bound(
        busy_.begin(), busy_.end(), start_s,
        [](double time_s, const Span& span) { return time_s < span.start_s; });
    if (next != busy_.begin() && std::prev(next)->end_s > start_s) {
      start_s = std::prev(next)->end_s;
    }
    for (; next != busy_.end() && next->start_s < start_s + seconds; ++next) {
      start_s = next->end_s;
    }
    return start_s;
  }

  // The last start of `seconds` that end at `end_s` at the latest.
  double Latest(double end_s, double seconds) const {
    double last_s = end_s;
    auto next = busy_.begin() + FirstFrom(last_s);
    while (next != busy_.begin()) {
      --next;
      if (next->end_s <= last_s - seconds) break;
      last_s = next->start_s;
    }
    return last_s - seconds;
  }

  // [start_s, end_s) is free.
  void Book(double start_s, double end_s) {
    auto next = busy_.begin() + FirstFrom(start_s);
    // What touches is one, so that a full lane is passed over in one step.
    if (next != busy_.end() && next->start_s == end_s) {
      end_s = next->end_s;
      next = busy_.erase(next);
    }
    if (next != busy_.begin() && std::prev(next)->end_s == start_s) {
      std::prev(next)->end_s = end_s;
      return;
    }
    if (next != busy_.end() && next->start_s == start_s) return;
    busy_.insert(next, {start_s, end_s});
  }

 private:
  struct Span {
    double start_s;
    double end_s;
  };

  // The first span that begins at `time_s` or later.
  std::ptrdiff_t FirstFrom(double time_s) const {
    return std::lower_bound(busy_.begin(), busy_.end(), time_s,
                            [](const Span& span, double other_s) {
                              return span.start_s < other_s;
                            }) -
           busy_.begin();
  }

  std::vector<Span> busy_;  // in the order of their times
};

}  // namespace pipewright
