// Runs a Program on the threads of this process, one a rank: the embedded
// transport of the executor.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/run/clock.h"
#include "execute/run/faults.h"
#include "execute/run/rank_record.h"
#include "execute/run/worker.h"
#include "execute/transport/transport.h"
#include "sim/engine/engine.h"

namespace pipewright {

struct ExecuteOptions {
  ClockKind clock = ClockKind::kVirtual;
  // With the virtual clock: durations of the program instead of those that
  // the worker measures.
  bool takes_given = false;
  bool trace = false;
  double timeout_s = 60;
  // A rank that lives but has computed one thing for longer than so many
  // time-outs is given up.
  double patience = 20;
  // Told then, with what every rank waits for: RunThreads itself returns when
  // all threads have ended. May be null.
  std::function<void(const absl::Status&)> hopeless;
  Faults faults;
  // Told by the first rank alone; may be null.
  Progress* progress = nullptr;
  // With the real clock: others are not there, but told by messages that say
  // when they come (MakeReplayClock).
  bool replays = false;
  // [replica * pp + rank]: see RankRunOptions. `takes`: [rank]; empty, or null
  // where it is the program's.
  std::vector<RankRecord>* records = nullptr;
  std::vector<const RankRecord*> takes;
  // Puts an end of its own in front of the one that it is given, which must
  // outlive it; see nccl_transport.h.
  std::function<std::unique_ptr<Endpoint>(const Program& program, Address self,
                                          Endpoint* control)>
      data_path;
};

struct ExecutedRun {
  RunSummary summary;
  std::vector<TraceOp> ops;  // by start
  double late_s = 0;         // worst late waking of the paced clock
  double wall_s = 0;
  // Involuntary context switches of the ranks' threads while they ran.
  int64_t preemptions = 0;
};

// Makes the worker of one rank; called on the thread that it will live on.
using MakeWorker =
    std::function<absl::StatusOr<std::unique_ptr<Worker>>(Address)>;

// `program.iterations` iterations. Error: kFailedPrecondition with the blocked
// operations marked, kUnavailable where a rank is lost, the first that a
// worker gives.
absl::StatusOr<ExecutedRun> RunThreads(const Program& program,
                                       const MakeWorker& make_worker,
                                       const ExecuteOptions& options);

// What the ranks of a run have told, put together; every rank of every
// replica has run.
struct RankResult {
  Address address;
  RankTimes times;
  std::vector<double> iteration_end_s;
  std::vector<TraceOp> ops;
};
ExecutedRun GatherResults(const Program& program,
                          std::vector<RankResult> results);

}  // namespace pipewright
