// Values that are made once each and then only read, by any number of threads.
// A thread that asks for one that is being made waits for it, and for no other.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace pipewright {

template <typename Value>
class Kept {
 public:
  // The value of `key`, made by `make()` where it is asked for the first time.
  // It stays where it is as long as this does.
  template <typename Make>
  const Value& Get(const std::string& key, const Make& make) {
    Entry& entry = At(key);
    std::call_once(entry.once, [&] {
      entry.value = std::make_unique<const Value>(make());
    });
    return *entry.value;
  }

 private:
  struct Entry {
    std::once_flag once;
    std::unique_ptr<const Value> value;
  };

  Entry& At(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return entries_[key];  // a map keeps addresses
  }

  std::mutex mutex_;
  std::map<std::string, Entry> entries_;
};

}  // namespace pipewright
