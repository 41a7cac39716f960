// A map of values that are made when somebody first asks for them.
#pragma once

namespace pipewright {

// The value of `key`, made by `make()` where it is not there. If that throws,
// the map stays as it was: an empty value would be taken for a known one.
template <typename Map, typename Make>
const typename Map::mapped_type& FindOrMake(const typename Map::key_type& key,
                                            const Make& make, Map* map) {
  const auto known = map->find(key);
  if (known != map->end()) return known->second;
  return map->emplace(key, make()).first->second;
}

}  // namespace pipewright
