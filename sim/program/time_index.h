// Positions in a rising list of times, found without a search: the range of the
// times is cut into as many equal parts as there are times.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipewright {

class TimeIndex {
 public:
  // `times` rise, are finite and must outlive this.
  explicit TimeIndex(const std::vector<double>& times) : times_(times) {
    if (times.empty()) return;
    const double range = times.back() - times.front();
    if (range > 0) parts_each_ = static_cast<double>(times.size()) / range;
    first_.reserve(times.size() + 1);
    for (size_t position = 0; position < times.size(); ++position) {
      // What lies in an earlier part is earlier, however parts were rounded.
      while (first_.size() <= PartOf(times[position])) {
        first_.push_back(static_cast<int32_t>(position));
      }
    }
  }

  // The first at `time` or later; the number of times where there is none.
  int64_t FirstFrom(double time) const {
    return First([time](double each) { return each >= time; }, time);
  }
  // The same, later than `time`.
  int64_t FirstAfter(double time) const {
    return First([time](double each) { return each > time; }, time);
  }

 private:
  size_t PartOf(double time) const {
    const double part = (time - times_.front()) * parts_each_;
    return part > 0 ? static_cast<size_t>(part) : 0;
  }

  template <typename Found>
  int64_t First(const Found& found, double time) const {
    const auto size = static_cast<int64_t>(times_.size());
    if (times_.empty() || !found(times_.back())) return size;
    int64_t position = first_[std::min(PartOf(time), first_.size() - 1)];
    while (!found(times_[position])) ++position;
    return position;
  }

  const std::vector<double>& times_;
  std::vector<int32_t> first_;  // [part] first time in it or behind
  double parts_each_ = 0;       // parts a second
};

}  // namespace pipewright
