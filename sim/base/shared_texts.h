// Texts by name that copies share until one of them changes: what a device or a
// system says about its numbers goes with it into every run.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>

namespace pipewright {

class SharedTexts {
 public:
  using Map = std::map<std::string, std::string>;

  const Map& operator*() const {
    static const auto* const none = new Map;
    return texts_ == nullptr ? *none : *texts_;
  }
  Map::const_iterator begin() const { return (**this).begin(); }
  Map::const_iterator end() const { return (**this).end(); }
  Map::const_iterator find(const std::string& name) const {
    return (**this).find(name);
  }
  const std::string& at(const std::string& name) const {
    return (**this).at(name);
  }

  // A change always makes a map of its own: another thread may still read the
  // old one, and how many hold it says nothing about that.
  void Set(const std::string& name, std::string text) {
    auto changed = std::make_shared<Map>(**this);
    (*changed)[name] = std::move(text);
    texts_ = std::move(changed);
  }
  void Erase(const std::string& name) {
    if (find(name) == end()) return;
    auto changed = std::make_shared<Map>(**this);
    changed->erase(name);
    texts_ = std::move(changed);
  }

  friend bool operator==(const SharedTexts& one, const SharedTexts& other) {
    return one.texts_ == other.texts_ || *one == *other;
  }

 private:
  std::shared_ptr<const Map> texts_;
};

}  // namespace pipewright
