// First in, first out, in one allocation: no memory while empty, constant
// time a step however long it gets.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace pipewright {

template <class T>
class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  size_t size() const { return items_.size() - head_; }
  T& front() { return items_[head_]; }
  const T& front() const { return items_[head_]; }
  // The one at `index` from the front.
  T& operator[](size_t index) { return items_[head_ + index]; }
  const T& operator[](size_t index) const { return items_[head_ + index]; }
  void push_back(T item) { items_.push_back(std::move(item)); }
  void pop_front() {
    ++head_;
    // Moves at most as many items as have been taken since the last time.
    if (2 * head_ >= items_.size()) {
      items_.erase(items_.begin(),
                   items_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
  }

 private:
  std::vector<T> items_;
  size_t head_ = 0;
};

}  // namespace pipewright
