// Single causes that explain why a measured run is not the simulated one: a
// kind of pass that takes longer, a rank that is slow, a link, one message
// that came late. They are found from the lengths of the operations alone;
// what each costs is its own replay.
//
// Method. The ratio of measured to simulated time of every (kind, rank) is
// explained once, with as few factors as do it (factors.h), each above 2 % and
// above the noise of the ratios. What then lies far outside the noise is a
// finding of its own. Gaps on the compute stream, which should not be, and
// operations that should take no time, are named in seconds.
//
// Effects. The simulated run is replayed with what a finding names, and
// nothing else: lengths times the factor, or seconds more. All findings are
// replayed together in the same way. A pipeline hides one delay behind
// another, so that single effects need not add up to the common one.
#pragma once

#include <string>
#include <vector>

#include "sim/analysis/compare/factors.h"
#include "sim/analysis/compare/paired_run.h"
#include "sim/analysis/compare/replay_pair.h"

namespace pipewright {

struct Finding {
  // "kernel", "message", "copy", "synchronisation", "optimizer",
  // "gap"
  std::string what;
  std::string text;    // a line for people
  std::string label;   // "B", "F, W", "F3", "all-reduce"; "" for all of them
  int rank = -1;       // -1: all, or several
  int peer = -1;       // receiving rank of messages
  int iteration = -1;  // for single operations; -1: all
  double factor = 1;   // measured over simulated, of groups
  double late_s = 0;   // longer than expected, of each operation
  // What the step takes longer for this alone.
  double effect_s = 0;
  // Kinds, and ranks or links, of a group; empty: all.
  std::vector<std::string> kinds;
  std::vector<Column> places;
};

struct Findings {
  std::vector<Finding> list;  // the largest effects first
  double effect_s = 0;        // effect of the whole list at a time
  size_t left_out = 0;        // smaller ones that are not in the list
};

// `iteration`: whose step the effects of groups, and of all together, are of;
// those of single operations are of the step that they were in.
Findings FindCauses(const PairedRun& run, const PairReplay& replay,
                    int iteration);

}  // namespace pipewright
