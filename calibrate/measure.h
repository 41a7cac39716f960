// The order of measuring. Rounds go over all subjects, always in the same
// order. So the rounds of each subject lie evenly over the whole run, and the
// spread from round to round shows the drift. (Going there and back, ABBA,
// would put two rounds of the last subject side by side.) It knows no kernels:
// a subject is a closure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/statistics.h"
#include "sim/profile/profile.h"

namespace pipewright {

// One of the things that a subject's visit measures, and where it goes.
struct Series {
  std::string key;
  std::function<void(const Distribution& measured, Profile* profile)> put;
  // Does the profile have it, with enough rounds? Asked when a run resumes.
  std::function<bool(const Profile& profile)> has;
};

// Things that are measured together: the passes of one shape.
struct Subject {
  std::string name;
  double share = 1;  // part of the time, relative to other subjects
  std::vector<Series> series;
  // Takes one sample of each series, in their order. With kDeadlineExceeded the
  // visit is lost, and another may succeed.
  std::function<absl::Status(std::vector<double>* samples)> visit;
  // Runs before the first visit of a round. It renews what a fresh process
  // would get anew and times depend on: buffers and threads. May be empty.
  std::function<absl::Status(int round)> begin_round;
};

struct MeasureOptions {
  StoppingRule rule;
  int rounds = 6;
  // Wall clock, of everything. 0: as little as three rounds take.
  double budget_s = 30;
  bool refuses = false;   // a budget that is too small; else it is exceeded
  double spent_s = 0;     // used up of the budget before the call
  int least_visits = 2;   // in a round
  int most_visits = 24;   // in a round
  double resolution = 0;  // the clock's, seconds
};

// What the loop needs of the world; a test scripts it.
struct MeasureHooks {
  std::function<double()> now;  // seconds, any zero
  std::function<bool()> stop;   // an interrupt: asked before every visit
  std::function<void(int round, int rounds, const std::string& subject)>
      progress;  // may be empty
  // Called once, after a first visit of all subjects, with the seconds that
  // three rounds of everything take, with all that is spent. May be empty.
  std::function<void(double minimum_s)> estimated;
  // Visits are brief until it is called: so are those of a budget that has no
  // room for more. May be empty: there are no brief ones.
  std::function<void()> go_whole;
  // Called after each round with the profile so far. May be empty.
  std::function<absl::Status(const Profile& sofar)> round_done;
};

struct Measured {
  Profile profile;  // the series alone: no sources
  bool interrupted = false;
  int rounds = 0;
  double minimum_s = 0;                // estimate: see MeasureHooks
  std::vector<std::string> imprecise;  // keys that did not become precise
  std::vector<std::string> lost;       // subjects that lost visits, and why
};

// First it visits every subject once: the first visit sets things up and shows
// how long a visit takes. If three rounds do not fit into the budget, that is
// said then and nothing else is done. Every round visits every subject until
// the subject's share of the remaining budget is spent, but at least
// `least_visits` times; a brief first visit that was long enough to warm up
// counts as one of the first round. Once the stopping rule says that it is
// enough, there are no more visits than that: later rounds only show the drift.
// A short visit is made once before without keeping its samples, because the
// caches hold data of other subjects. Behind three rounds another one begins
// only if the least of it fits into what is left: as long as visits take as
// long as the first ones, all ends within 1.3 times the budget. Adds to
// `start`. Errors: kResourceExhausted, with the least budget that works. With
// the subject's name in front: that of a visit, unless it is only lost;
// kInternal for a sample that is not finite; kDeadlineExceeded for a subject
// that has lost three visits and made none.
absl::StatusOr<Measured> MeasureAll(const std::vector<Subject>& subjects,
                                    const MeasureOptions& options,
                                    const MeasureHooks& hooks, Profile start);

// Entries of a profile by their key.
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
