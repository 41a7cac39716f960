// The order of measuring: everything in rounds, round after round over all
// subjects in the same order, so that each thing's rounds lie evenly over the
// whole run and the spread from round to round shows the drift (there and back,
// ABBA, would put two rounds of the last subject side by side). Knows no
// kernels: a subject is a closure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/statistics.h"
#include "calibrate/stopping_rule.h"
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
  double share = 1;  // of the time, relative to other subjects
  std::vector<Series> series;
  // Takes one sample of each series, in their order.
  std::function<absl::Status(std::vector<double>* samples)> visit;
  // Before the first visit of a round: whatever a fresh process would get anew
  // and times depend on, buffers and threads. May be empty.
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
  // Once, after a first visit of all: what three rounds of everything take,
  // seconds, those visits included; may be empty.
  std::function<void(double minimum_s)> estimated;
  // After each round, with all that is there so far; may be empty.
  std::function<absl::Status(const Profile& sofar)> round_done;
};

struct Measured {
  Profile profile;  // of the series alone: no sources
  bool interrupted = false;
  int rounds = 0;
  double minimum_s = 0;                // estimate: see MeasureHooks
  std::vector<std::string> imprecise;  // keys that did not become precise
};

// First visits every subject once, for what the first visit has to do and to
// see how long it takes. Then every round visits every subject until its share
// of what is left of the budget is spent, `least_visits` times at least, and no
// oftener once the stopping rule says that it is enough: the later rounds show
// the drift. Short visits are made once before without keeping the samples, for
// what the caches have of other subjects. Three rounds are made whatever the
// budget; no further one begins when it is spent, so that all ends within the
// budget and one round where the minimum is below it. Adds to `start`. Errors,
// with the subject's name in front: that of a visit, kInternal for a sample
// that is not finite.
absl::StatusOr<Measured> MeasureAll(const std::vector<Subject>& subjects,
                                    const MeasureOptions& options,
                                    const MeasureHooks& hooks, Profile start);

}  // namespace pipewright
