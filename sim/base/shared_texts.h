// Texts by name that copies share until one of them changes: what a device or a
// system says about its numbers goes with it into every run.
#pragma once

#include <map>
#include <memory>
#include <string>

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

  // Stays where it is until this is copied.
  std::string& operator[](const std::string& name) { return Own()[name]; }
  void erase(const std::string& name) {
    if (find(name) != end()) Own().erase(name);
  }

  friend bool operator==(const SharedTexts& one, const SharedTexts& other) {
    return one.texts_ == other.texts_ || *one == *other;
  }

 private:
  Map& Own() {
    if (texts_ == nullptr || texts_.use_count() > 1) {
      texts_ = std::make_shared<Map>(**this);
    }
    return *texts_;
  }

  std::shared_ptr<Map> texts_;
};

}  // namespace pipewright
