// Arrival times on their way from one operation to another: a ring that grows,
// first in first out. A consumer that asks in another order than the producer
// delivered turns the queue into a table, once, so that any order stays
// linear in time. No times are computed here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace pipewright {

// A cache line each: the core touches two queues a pass.
class alignas(64) TokenQueue {
 public:
  TokenQueue() = default;

  // Keys must be unique among the tokens that wait.
  void Push(double time_s, uint64_t key) {
    if (tail_ - head_ == capacity_) [[unlikely]] {
      // A table has no slots, so it ends up here too.
      if (table_ != nullptr) {
        table_->emplace(key, time_s);
        return;
      }
      Grow();
    }
    slots_[tail_ & mask_] = {time_s, key};
    ++tail_;
  }

  // Takes the token of `key` out. False, with nothing changed, when it is not
  // there.
  [[gnu::always_inline]] bool Pop(uint64_t key, double* time_s) {
    if (head_ != tail_) [[likely]] {
      const Slot& slot = slots_[head_ & mask_];
      if (slot.key == key) [[likely]] {
        *time_s = slot.time_s;
        ++head_;
        return true;
      }
    } else if (table_ == nullptr) {
      return false;
    }
    return PopFromTable(key, time_s);
  }

  bool Contains(uint64_t key) {
    if (head_ != tail_) {
      if (slots_[head_ & mask_].key == key) return true;
      ToTable();
    }
    return table_ != nullptr && table_->contains(key);
  }

  size_t size() const {
    return table_ != nullptr ? table_->size() : tail_ - head_;
  }

 private:
  struct Slot {
    double time_s;
    uint64_t key;
  };

  [[gnu::noinline]] void Grow() {
    const size_t larger = capacity_ == 0 ? 16 : 2 * capacity_;
    auto slots = std::make_unique<Slot[]>(larger);
    const size_t count = tail_ - head_;
    for (size_t index = 0; index < count; ++index) {
      slots[index] = slots_[(head_ + index) & mask_];
    }
    slots_ = std::move(slots);
    capacity_ = larger;
    mask_ = larger - 1;
    head_ = 0;
    tail_ = count;
  }

  [[gnu::noinline]] bool PopFromTable(uint64_t key, double* time_s) {
    if (table_ == nullptr) ToTable();
    const auto found = table_->find(key);
    if (found == table_->end()) return false;
    *time_s = found->second;
    table_->erase(found);
    return true;
  }

  [[gnu::noinline]] void ToTable() {
    table_ = std::make_unique<absl::flat_hash_map<uint64_t, double>>();
    for (; head_ != tail_; ++head_) {
      const Slot& slot = slots_[head_ & mask_];
      table_->emplace(slot.key, slot.time_s);
    }
    head_ = tail_ = capacity_ = 0;
    slots_.reset();
  }

  std::unique_ptr<Slot[]> slots_;
  size_t capacity_ = 0;  // a power of two, or 0
  size_t mask_ = 0;
  size_t head_ = 0;
  size_t tail_ = 0;
  std::unique_ptr<absl::flat_hash_map<uint64_t, double>> table_;
};

}  // namespace pipewright
