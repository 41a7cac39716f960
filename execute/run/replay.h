// Runs the ranks of a Program one at a time on one device, each alone and at
// full rate, with its copies beside its passes; what comes from other ranks
// comes when a composed timeline says so. The timeline is the Program in
// virtual time with what the ranks have taken, and the simulated times of those
// that have not run. Ranks are run until what they were told agrees with what
// they make of it (reference: kernels and executor, section 5, option 1).
//
// Not in it: other ranks' data (theirs is made up), links that carry more than
// the program says, ranks that really run at the same time.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "execute/run/run_threads.h"

namespace pipewright {

struct ReplayOptions {
  // kReal: in wall time. kVirtual: what a rank takes does not depend on when
  // messages come, so that one pass over the ranks is enough.
  ClockKind clock = ClockKind::kReal;
  bool takes_given = false;  // as in ExecuteOptions
  std::vector<int> ranks;    // that are run, one after the other
  // Until no arrival at such a rank has changed by more than this part of a
  // step, or so often.
  double tolerance = 0.01;
  // The program's pass times mean something. Else everything from others is
  // there at once when the ranks run for the first time.
  bool times_known = true;
  int most_passes = 5;
  bool trace = false;
  double timeout_s = 60;
  Faults faults;
};

struct ReplayedRank {
  int rank = 0;
  RankTimes times;          // by the rank's own, last run
  double late_s = 0;        // in all, between when its work could begin and did
  double change_s = 0;      // largest change of the arrivals that it was told
  int64_t preemptions = 0;  // see ExecutedRun
};

struct ReplayedRun {
  ExecutedRun composed;
  std::vector<ReplayedRank> ranks;
  int passes = 0;
  double change_s = 0;  // the largest of the ranks
  bool consistent = false;
};

// `make_worker` is asked for ranks of replica 0, whose times stand for those
// of all replicas; once more in every pass. Errors: as RunThreads.
absl::StatusOr<ReplayedRun> Replay(const Program& program,
                                   const MakeWorker& make_worker,
                                   const ReplayOptions& options);

}  // namespace pipewright
