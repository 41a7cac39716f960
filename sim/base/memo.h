// Values that follow from a key alone, for keys that come again and again, from
// any number of threads. Unlike Kept it forgets: it has no more values than it
// may, however many keys there are. How large those grow is theirs; who holds a
// value keeps it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace pipewright {

template <typename Key, typename Value>
class Memo {
 public:
  // At least one.
  explicit Memo(size_t most) : most_(std::max<size_t>(1, most)) {}

  // The value of `key`. Where it is not known `make()` makes it, a
  // std::shared_ptr<Value>; two threads may both make it. Null is not kept.
  template <typename Make>
  std::shared_ptr<Value> Get(const Key& key, const Make& make) {
    if (std::shared_ptr<Value> known = Find(key)) return known;
    std::shared_ptr<Value> made = make();
    if (made == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (entries_.size() >= most_) entries_.pop_back();
    entries_.emplace(entries_.begin(), key, made);
    return made;
  }

 private:
  // A key that was asked for lately is near the front.
  std::shared_ptr<Value> Find(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found =
        std::find_if(entries_.begin(), entries_.end(),
                     [&key](const auto& entry) { return entry.first == key; });
    if (found == entries_.end()) return nullptr;
    if (found - entries_.begin() > kNear) {
      std::rotate(entries_.begin(), found, found + 1);
      return entries_.front().second;
    }
    return found->second;
  }

  static constexpr int kNear = 8;
  const size_t most_;
  std::mutex mutex_;
  std::vector<std::pair<Key, std::shared_ptr<Value>>> entries_;
};

}  // namespace pipewright
