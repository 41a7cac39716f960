// A queue of small whole numbers that yields the least one: bits, and above
// them a bit for each word that has one.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pipewright {

class PlaceQueue {
 public:
  // Takes numbers 0..size-1.
  explicit PlaceQueue(size_t size) {
    do {
      size = (size + 63) / 64;
      levels_.emplace_back(size);
    } while (size > 1);
  }

  bool empty() const {
    return levels_.back().empty() || levels_.back()[0] == 0;
  }

  // `number` is not in it.
  void Push(int32_t number) {
    auto at = static_cast<uint32_t>(number);
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[at / 64];
      const bool was_empty = word == 0;
      word |= uint64_t{1} << (at % 64);
      if (!was_empty) return;
      at /= 64;
    }
  }

  // Takes the least number out. It is not empty.
  int32_t Pop() {
    uint32_t at = 0;
    for (size_t level = levels_.size(); level-- > 0;) {
      at = at * 64 + std::countr_zero(levels_[level][at]);
    }
    const auto number = static_cast<int32_t>(at);
    for (std::vector<uint64_t>& level : levels_) {
      uint64_t& word = level[at / 64];
      word &= ~(uint64_t{1} << (at % 64));
      if (word != 0) break;
      at /= 64;
    }
    return number;
  }

 private:
  std::vector<std::vector<uint64_t>> levels_;  // the numbers' level first
};

}  // namespace pipewright
