// Two caches for any number of threads: Kept has each value that was ever asked
// for as long as it lives, Memo no more of them than it may.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace pipewright {

// Values that are made once each and then only read. A thread that asks for one
// that is being made waits for it, and for no other.
template <typename Value, typename Key = std::string>
class Kept {
 public:
  // The value of `key`, made by `make()` where it is asked for the first time;
  // if that throws, the next one who asks makes it. It stays where it is as
  // long as this does.
  template <typename Make>
  const Value& Get(const Key& key, const Make& make) {
    Entry& entry = At(key);
    if (const Value* made = entry.made.load(std::memory_order_acquire)) {
      return *made;
    }
    const std::lock_guard<std::mutex> lock(entry.mutex);
    if (entry.value == nullptr) {
      entry.value = std::make_unique<const Value>(make());
      entry.made.store(entry.value.get(), std::memory_order_release);
    }
    return *entry.value;
  }

 private:
  struct Entry {
    std::mutex mutex;
    std::unique_ptr<const Value> value;
    std::atomic<const Value*> made = nullptr;  // what `value` has
  };

  Entry& At(const Key& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return entries_[key];  // a map keeps addresses
  }

  std::mutex mutex_;
  std::map<Key, Entry> entries_;
};

// Values that follow from a key alone, for keys that come again and again. How
// large those grow is theirs; who holds a value keeps it.
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
