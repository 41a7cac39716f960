#include "execute/run_threads.h"

#include <algorithm>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/rank_run.h"
#include "execute/thread_transport.h"
#include "sim/schedule/verify.h"

namespace pipewright {
namespace {

struct RankOutcome {
  absl::Status status;
  RankResult result;
  std::string blocked;
  int64_t position = 0;
  double late_s = 0;
};

std::unique_ptr<Clock> MakeClock(const ExecuteOptions& options, double epoch_s,
                                 double* late_s) {
  switch (options.clock) {
    case ClockKind::kVirtual:
      return MakeVirtualClock(options.takes_given);
    case ClockKind::kPaced:
      return MakePacedClock(epoch_s, late_s);
    case ClockKind::kReal:
      return MakeRealClock(epoch_s);
  }
  return nullptr;
}

// One error for the user out of those of all ranks.
absl::Status Verdict(const Program& program,
                     const std::vector<RankOutcome>& outcomes) {
  // A failure explains the waiting of the others.
  for (const RankOutcome& each : outcomes) {
    const absl::StatusCode code = each.status.code();
    if (!each.status.ok() && code != absl::StatusCode::kFailedPrecondition &&
        code != absl::StatusCode::kUnavailable &&
        code != absl::StatusCode::kAborted) {
      return each.status;
    }
  }
  absl::Status lost;
  std::string blocked;
  bool deadlock = false;
  std::vector<int64_t> positions;
  for (const RankOutcome& each : outcomes) {
    if (lost.ok() && each.status.code() == absl::StatusCode::kUnavailable) {
      lost = each.status;
    }
    deadlock |= each.status.code() == absl::StatusCode::kFailedPrecondition;
    if (!each.blocked.empty()) absl::StrAppend(&blocked, "\n", each.blocked);
    if (each.result.address.replica == 0) positions.push_back(each.position);
  }
  if (!lost.ok()) return lost;
  for (const RankOutcome& each : outcomes) {
    if (each.status.code() == absl::StatusCode::kAborted) return each.status;
  }
  if (!deadlock) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "deadlock (", WaitRuleName(program.wait_rule), " transfers):\n",
      BlockedGrid(*program.schedule, positions), blocked));
}

}  // namespace

ExecutedRun GatherResults(const Program& program,
                          std::vector<RankResult> results) {
  ExecutedRun run;
  RunSummary& summary = run.summary;
  summary.times.resize(program.replicas, std::vector<RankTimes>(program.pp()));
  summary.iteration_end_s.assign(program.iterations, 0);
  for (RankResult& result : results) {
    summary.times[result.address.replica][result.address.rank] = result.times;
    for (int iteration = 0; iteration < program.iterations; ++iteration) {
      double& end_s = summary.iteration_end_s[iteration];
      end_s = std::max(end_s, result.iteration_end_s[iteration]);
    }
    run.ops.insert(run.ops.end(), result.ops.begin(), result.ops.end());
  }
  for (int replica = 0; replica < program.replicas; ++replica) {
    summary.row_of_replica.push_back(replica);
  }
  std::stable_sort(
      run.ops.begin(), run.ops.end(),
      [](const TraceOp& a, const TraceOp& b) { return a.start_s < b.start_s; });
  summary.steady = false;
  summary.passes = program.num_passes();
  summary.simulated_ops =
      program.num_ops() * program.iterations * program.replicas;
  summary.bytes_sent = CountBytesSent(program);
  return run;
}

absl::StatusOr<ExecutedRun> RunThreads(const Program& program,
                                       const MakeWorker& make_worker,
                                       const ExecuteOptions& options) {
  const ReplicaRows rows = SortReplicas(program);
  ThreadFabric fabric(program.replicas, program.pp());
  const double epoch_s = SteadySeconds();
  std::vector<RankOutcome> outcomes(static_cast<size_t>(program.replicas) *
                                    program.pp());
  const auto run_rank = [&](Address self, RankOutcome* outcome) {
    outcome->result.address = self;
    const std::unique_ptr<Clock> clock =
        MakeClock(options, epoch_s, &outcome->late_s);
    absl::StatusOr<std::unique_ptr<Worker>> worker = make_worker(self);
    outcome->status = worker.status();
    if (worker.ok()) {
      RankRun run(program, self, rows.times[rows.row_of_replica[self.replica]],
                  fabric.endpoint(self), worker->get(), clock.get(),
                  {.timeout_s = options.timeout_s,
                   .trace = options.trace,
                   .faults = options.faults});
      outcome->status = run.Run();
      outcome->blocked = outcome->status.ok() ? "" : run.Blocked();
      outcome->position = run.position();
      outcome->result.times = run.first_times();
      outcome->result.iteration_end_s = run.iteration_end_s();
      outcome->result.ops = std::move(run.ops());
    }
    // A rank that knows of a deadlock has nothing more to give either.
    fabric.Leave(self, !outcome->status.ok() &&
                           outcome->status.code() !=
                               absl::StatusCode::kFailedPrecondition);
  };
  std::vector<std::thread> threads;
  for (size_t index = 0; index < outcomes.size(); ++index) {
    const Address self = {static_cast<int32_t>(index / program.pp()),
                          static_cast<int32_t>(index % program.pp())};
    threads.emplace_back(run_rank, self, &outcomes[index]);
  }
  for (std::thread& thread : threads) thread.join();
  const absl::Status verdict = Verdict(program, outcomes);
  if (!verdict.ok()) return verdict;
  std::vector<RankResult> results;
  double late_s = 0;
  for (RankOutcome& outcome : outcomes) {
    late_s = std::max(late_s, outcome.late_s);
    results.push_back(std::move(outcome.result));
  }
  ExecutedRun run = GatherResults(program, std::move(results));
  run.late_s = late_s;
  run.wall_s = SteadySeconds() - epoch_s;
  return run;
}

}  // namespace pipewright
