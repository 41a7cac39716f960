// One rank of a run from its worker to its end, and what the ends of all ranks
// mean together. The same for threads and processes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "execute/run/run_threads.h"
#include "execute/transport/transport.h"
#include "sim/engine/isolated_times.h"

namespace pipewright {

struct RankOutcome {
  absl::Status status;
  RankResult result;
  std::string blocked;   // what it waited for, if it has not ended
  int64_t position = 0;  // in its order
  double late_s = 0;     // see ExecutedRun
  int64_t preemptions = 0;
};

// Makes the worker and runs it. `start` is called once in between, with whether
// there is a worker that is connected, and gives the time that is zero for all
// ranks. The worker is put into *worker, where others may still hold what it
// has sent. What is thrown is in the outcome's status.
RankOutcome RunRank(const Program& program, Address self,
                    const IsolatedTimes& times, Endpoint* endpoint,
                    const MakeWorker& make_worker,
                    const ExecuteOptions& options,
                    const std::function<absl::StatusOr<double>(bool)>& start,
                    std::unique_ptr<Worker>* worker);

// One error for the user out of those of all ranks, or none:
//   what a worker has said;
//   kUnavailable: a rank or a message is lost, with what every rank waits for;
//   kFailedPrecondition: the schedule deadlocks, with the grid.
// Whether messages are lost or the schedule deadlocks is told by the
// simulating engine, in which no message is ever lost.
absl::Status Verdict(const Program& program,
                     const std::vector<RankOutcome>& outcomes);

}  // namespace pipewright
