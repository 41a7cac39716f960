// One direction of copies between a device and its host, as a plan books it: a
// copy has it to itself.
#pragma once

#include <iterator>
#include <map>

namespace pipewright {

class CopyLane {
 public:
  // The first time from `ready_s` on at which the lane is free for `seconds`.
  double Earliest(double ready_s, double seconds) const {
    double start_s = ready_s;
    auto next = busy_.upper_bound(start_s);
    if (next != busy_.begin() && std::prev(next)->second > start_s) {
      start_s = std::prev(next)->second;
    }
    for (; next != busy_.end() && next->first < start_s + seconds; ++next) {
      start_s = next->second;
    }
    return start_s;
  }

  // The last start of `seconds` that end at `end_s` at the latest.
  double Latest(double end_s, double seconds) const {
    double last_s = end_s;
    auto next = busy_.lower_bound(last_s);
    while (next != busy_.begin()) {
      --next;
      if (next->second <= last_s - seconds) break;
      last_s = next->first;
    }
    return last_s - seconds;
  }

  // [start_s, end_s) is free.
  void Book(double start_s, double end_s) {
    auto next = busy_.lower_bound(start_s);
    // What touches is one, so that a full lane is passed over in one step.
    if (next != busy_.end() && next->first == end_s) {
      end_s = next->second;
      next = busy_.erase(next);
    }
    if (next != busy_.begin() && std::prev(next)->second == start_s) {
      std::prev(next)->second = end_s;
      return;
    }
    busy_.emplace_hint(next, start_s, end_s);
  }

 private:
  std::map<double, double> busy_;  // start -> end
};

}  // namespace pipewright
