// Entries of a profile by their key.
#pragma once

#include <string>
#include <vector>

#include "calibrate/measure.h"
#include "sim/profile/profile.h"

namespace pipewright {

template <class Entry>
const Entry* FindEntry(const std::vector<Entry>& entries,
                       const std::string& key) {
  for (const Entry& entry : entries) {
    if (KeyOf(entry) == key) return &entry;
  }
  return nullptr;
}

template <class Entry>
Entry* FindOrAdd(std::vector<Entry>* entries, const Entry& wanted) {
  const std::string key = KeyOf(wanted);
  for (Entry& entry : *entries) {
    if (KeyOf(entry) == key) return &entry;
  }
  entries->push_back(wanted);
  return &entries->back();
}

// Three rounds and more leave a prediction interval.
inline bool IsFinished(const Distribution& time) {
  return time.prediction_high_s > 0;
}

// A series that is an entry of its own: `list` of the profile, `time` of the
// entry.
template <class Entry>
Series EntrySeries(const Entry& entry, std::vector<Entry> Profile::*list,
                   Distribution Entry::*time) {
  const std::string key = KeyOf(entry);
  return {key,
          [entry, list, time](const Distribution& measured, Profile* profile) {
            FindOrAdd(&(profile->*list), entry)->*time = measured;
          },
          [key, list, time](const Profile& profile) {
            const Entry* found = FindEntry(profile.*list, key);
            return found != nullptr && IsFinished(found->*time);
          }};
}

}  // namespace pipewright
