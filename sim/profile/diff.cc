#include "sim/profile/diff.h"

#include <map>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

struct Interval {
  double low = 0;
  double high = 0;
  bool drift = true;
  bool known = true;
};

Interval IntervalOf(const Distribution& time) {
  if (time.prediction_high_s > 0) {
    return {time.prediction_low_s, time.prediction_high_s, true};
  }
  if (time.confidence_high_s > 0) {
    return {time.confidence_low_s, time.confidence_high_s, false};
  }
  return {time.median_s, time.median_s, false, false};
}

bool Outside(double value, const Interval& interval) {
  return value < interval.low || value > interval.high;
}

TimeDifference Compare(const std::string& key, const Distribution& before,
                       const Distribution& after) {
  const Interval old_interval = IntervalOf(before);
  const Interval new_interval = IntervalOf(after);
  TimeDifference difference;
  difference.key = key;
  difference.before_s = before.median_s;
  difference.after_s = after.median_s;
  difference.ratio = after.median_s / before.median_s;
  difference.ratio_low =
      new_interval.low /
      (old_interval.high > 0 ? old_interval.high : before.median_s);
  difference.ratio_high =
      new_interval.high /
      (old_interval.low > 0 ? old_interval.low : before.median_s);
  difference.drift = old_interval.drift && new_interval.drift;
  difference.known = old_interval.known && new_interval.known;
  difference.significant = difference.known &&
                           Outside(after.median_s, old_interval) &&
                           Outside(before.median_s, new_interval);
  return difference;
}

template <class Entry>
void Append(const std::vector<Entry>& entries, std::vector<NamedTime>* times) {
  for (const Entry& entry : entries) {
    times->push_back({KeyOf(entry), &entry.time});
  }
}

}  // namespace

std::vector<NamedTime> AllTimes(const Profile& profile) {
  std::vector<NamedTime> times;
  Append(profile.passes, &times);
  for (const PassEntry& entry : profile.passes) {
    if (entry.graph.count == 0) continue;
    times.push_back({absl::StrCat("graph of ", KeyOf(entry)), &entry.graph});
  }
  for (const SplitEntry& entry : profile.splits) {
    times.push_back({KeyOf(entry), &entry.chain});
    times.push_back({absl::StrCat(KeyOf(entry), " fused"), &entry.fused});
  }
  Append(profile.kernels, &times);
  Append(profile.optimizers, &times);
  Append(profile.copies, &times);
  Append(profile.transfers, &times);
  return times;
}

ProfileDiff DiffProfiles(const Profile& before, const Profile& after) {
  ProfileDiff diff;
  std::map<std::string, const Distribution*> old_times;
  for (const NamedTime& time : AllTimes(before)) {
    old_times[time.key] = time.time;
  }
  for (const NamedTime& time : AllTimes(after)) {
    const auto old = old_times.find(time.key);
    if (old == old_times.end()) {
      diff.only_after.push_back(time.key);
      continue;
    }
    diff.times.push_back(Compare(time.key, *old->second, *time.time));
    old_times.erase(old);
  }
  // In the order of the file.
  for (const NamedTime& time : AllTimes(before)) {
    if (old_times.count(time.key) > 0) diff.only_before.push_back(time.key);
  }
  return diff;
}

std::vector<IntervalCoverage> CoverageOf(const std::vector<Profile>& profiles) {
  std::vector<IntervalCoverage> rows = {{.name = "all"}};
  std::map<std::string, size_t> places;
  std::vector<std::map<std::string, const Distribution*>> times;
  for (const Profile& profile : profiles) {
    times.emplace_back();
    for (const NamedTime& time : AllTimes(profile)) {
      times.back()[time.key] = time.time;
    }
  }
  for (size_t old_run = 0; old_run < times.size(); ++old_run) {
    for (const auto& [key, time] : times[old_run]) {
      if (time->prediction_high_s <= 0) continue;
      const std::string word = key.substr(0, key.find(' '));
      const auto [place, is_new] = places.emplace(word, rows.size());
      if (is_new) rows.push_back({.name = word});
      for (size_t run = old_run + 1; run < times.size(); ++run) {
        const auto later = times[run].find(key);
        if (later == times[run].end()) continue;
        const double median = later->second->median_s;
        const int64_t inside = median >= time->prediction_low_s &&
                                       median <= time->prediction_high_s
                                   ? 1
                                   : 0;
        for (IntervalCoverage* row : {&rows[0], &rows[place->second]}) {
          ++row->compared;
          row->inside += inside;
          if (run > old_run + 1) continue;
          ++row->next_compared;
          row->next_inside += inside;
        }
      }
    }
  }
  return rows;
}

}  // namespace pipewright
