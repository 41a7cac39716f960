#include "execute/run_threads.h"

#include <algorithm>
#include <barrier>
#include <thread>
#include <utility>

#include "execute/rank_outcome.h"
#include "execute/thread_transport.h"
#include "sim/engine/isolated_times.h"

namespace pipewright {

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
  std::vector<RankOutcome> outcomes(static_cast<size_t>(program.replicas) *
                                    program.pp());
  // Zero is when the last worker has been made: warming up is no step.
  double epoch_s = 0;
  std::barrier made(static_cast<std::ptrdiff_t>(outcomes.size()),
                    [&epoch_s]() noexcept { epoch_s = SteadySeconds(); });
  const auto start = [&](bool) {
    made.arrive_and_wait();
    return epoch_s;
  };
  // Until all have ended: others may hold what a worker has sent.
  std::vector<std::unique_ptr<Worker>> workers(outcomes.size());
  // These too: one may not take itself apart while others use it.
  std::vector<std::unique_ptr<Endpoint>> data_paths(outcomes.size());
  const auto run_rank = [&](Address self, RankOutcome* outcome,
                            std::unique_ptr<Worker>* worker,
                            std::unique_ptr<Endpoint>* data_path) {
    Endpoint* endpoint = fabric.endpoint(self);
    if (options.data_path) {
      *data_path = options.data_path(program, self, endpoint);
      endpoint = data_path->get();
    }
    *outcome =
        RunRank(program, self, rows.times[rows.row_of_replica[self.replica]],
                endpoint, make_worker, options, start, worker);
    // A rank that knows of a deadlock has nothing more to give either.
    fabric.Leave(self, !outcome->status.ok() &&
                           outcome->status.code() !=
                               absl::StatusCode::kFailedPrecondition);
  };
  std::vector<std::thread> threads;
  for (size_t index = 0; index < outcomes.size(); ++index) {
    const Address self = {static_cast<int32_t>(index / program.pp()),
                          static_cast<int32_t>(index % program.pp())};
    threads.emplace_back(run_rank, self, &outcomes[index], &workers[index],
                         &data_paths[index]);
  }
  for (std::thread& thread : threads) thread.join();
  // What one has been given lies in the memory of another. Threads of copies
  // end here, which tell the data paths.
  for (const auto& worker : workers) {
    if (worker != nullptr) worker->Forget();
  }
  data_paths.clear();
  workers.clear();
  const absl::Status verdict = Verdict(program, outcomes);
  if (!verdict.ok()) return verdict;
  std::vector<RankResult> results;
  double late_s = 0;
  int64_t preemptions = 0;
  for (RankOutcome& outcome : outcomes) {
    late_s = std::max(late_s, outcome.late_s);
    preemptions += outcome.preemptions;
    results.push_back(std::move(outcome.result));
  }
  ExecutedRun run = GatherResults(program, std::move(results));
  run.preemptions = preemptions;
  run.late_s = late_s;
  run.wall_s = SteadySeconds() - epoch_s;
  return run;
}

}  // namespace pipewright
