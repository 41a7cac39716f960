// The order of measuring: everything in rounds, round after round over all
// subjects, so that each thing's samples lie apart in time and the spread from
// round to round shows the drift. Knows no kernels: a subject is a closure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/statistics.h"
#include "calibrate/stopping_rule.h"
#include "sim/cost/profile.h"

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
  double share = 1;  // of the time, relative to other subjects
  std::vector<Series> series;
  // Takes one sample of each series, in their order.
  std::function<absl::Status(std::vector<double>* samples)> visit;
  // Before the first visit of a round: fresh buffers, other addresses. May be
  // empty.
  std::function<absl::Status(int round)> begin_round;
};

struct MeasureOptions {
  StoppingRule rule;
  int rounds = 6;
  double budget_s = 30;   // wall clock, of everything
  int least_visits = 2;   // of a round
  int most_visits = 24;   // of a round
  double resolution = 0;  // of the clock, seconds
};

// What the loop needs of the world; a test scripts it.
struct MeasureHooks {
  std::function<double()> now;  // seconds, any zero
  std::function<bool()> stop;   // an interrupt: asked before every visit
  std::function<void(int round, int rounds, const std::string& subject)>
      progress;  // may be empty
  // After each round, with all that is there so far; may be empty.
  std::function<absl::Status(const Profile& sofar)> round_done;
};

struct Measured {
  Profile profile;  // of the series alone: no sources
  bool interrupted = false;
  int rounds = 0;
  std::vector<std::string> imprecise;  // keys that did not become precise
};

// Every round visits every subject (back and forth: ABC, CBA) until its share
// of the budget is spent, `least_visits` times at least. Short visits are made
// once before without keeping the samples, for what the caches have of other
// subjects. Three rounds are made whatever the budget; further ones leave out
// the subjects for which the stopping rule says that it is enough. Adds to
// `start`. Error: that of a visit, with the subject's name in front.
absl::StatusOr<Measured> MeasureAll(const std::vector<Subject>& subjects,
                                    const MeasureOptions& options,
                                    const MeasureHooks& hooks, Profile start);

}  // namespace pipewright
