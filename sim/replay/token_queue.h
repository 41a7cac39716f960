// Arrival times on their way from one operation to another: a ring that grows,
// first in first out. A consumer that asks in another order than the producer
// delivered turns the queue into a table, once, so that any order stays
// linear in time. No times are computed here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace pipewright {

class TokenQueue {
 public:
  TokenQueue() = default;

  // Keys must be unique among the tokens that wait.
  void Push(double time_s, uint64_t key) {
    if (table_ != nullptr) [[unlikely]] {
      table_->emplace(key, time_s);
      return;
    }
    if (tail_ - head_ == slots_.size()) [[unlikely]]
      Grow();
    slots_[tail_ & mask_] = {time_s, key};
    ++tail_;
  }

  // Takes the token of `key` out. False, with nothing changed, when it is not
  // there.
  bool Pop(uint64_t key, double* time_s) {
    if (head_ != tail_) [[likely]] {
      const Slot& slot = slots_[head_ & mask_];
      if (slot.key == key) [[likely]] {
        *time_s = slot.time_s;
        ++head_;
        return true;
      }
      ToTable();
    }
    if (table_ == nullptr) return false;
    const auto found = table_->find(key);
    if (found == table_->end()) return false;
    *time_s = found->second;
    table_->erase(found);
    return true;
  }

  bool Contains(uint64_t key) const {
    if (table_ != nullptr) return table_->contains(key);
    for (size_t index = head_; index != tail_; ++index) {
      if (slots_[index & mask_].key == key) return true;
    }
    return false;
  }

  size_t size() const {
    return table_ != nullptr ? table_->size() : tail_ - head_;
  }

 private:
  struct Slot {
    double time_s;
    uint64_t key;
  };

  void Grow() {
    std::vector<Slot> larger(slots_.empty() ? 16 : 2 * slots_.size());
    const size_t count = tail_ - head_;
    for (size_t index = 0; index < count; ++index) {
      larger[index] = slots_[(head_ + index) & mask_];
    }
    slots_ = std::move(larger);
    mask_ = slots_.size() - 1;
    head_ = 0;
    tail_ = count;
  }

  void ToTable() {
    table_ = std::make_unique<absl::flat_hash_map<uint64_t, double>>();
    for (; head_ != tail_; ++head_) {
      const Slot& slot = slots_[head_ & mask_];
      table_->emplace(slot.key, slot.time_s);
    }
  }

  std::vector<Slot> slots_;  // size is a power of two, or 0
  size_t mask_ = 0;
  size_t head_ = 0;
  size_t tail_ = 0;
  std::unique_ptr<absl::flat_hash_map<uint64_t, double>> table_;
};

}  // namespace pipewright
