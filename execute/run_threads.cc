#include "execute/run_threads.h"

#include <algorithm>
#include <barrier>
#include <latch>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/rank_outcome.h"
#include "execute/thread_transport.h"
#include "sim/base/exceptions.h"
#include "sim/base/status.h"
#include "sim/engine/isolated_times.h"

namespace pipewright {
namespace {

Address AddressOf(const Program& program, size_t index) {
  return {static_cast<int32_t>(index / program.pp()),
          static_cast<int32_t>(index % program.pp())};
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
  std::vector<RankOutcome> outcomes(static_cast<size_t>(program.replicas) *
                                    program.pp());
  // Zero is when the last worker has been made: warming up is no step.
  double epoch_s = 0;
  std::barrier made(static_cast<std::ptrdiff_t>(outcomes.size()),
                    [&epoch_s]() noexcept { epoch_s = SteadySeconds(); });
  // Until all have ended: others may hold what a worker has sent.
  std::vector<std::unique_ptr<Worker>> workers(outcomes.size());
  // These too: one may not take itself apart while others use it.
  std::vector<std::unique_ptr<Endpoint>> data_paths(outcomes.size());
  const auto run_rank = [&](size_t index) {
    const Address self = AddressOf(program, index);
    RankOutcome& outcome = outcomes[index];
    outcome.result.address = self;
    bool came = false;
    const absl::Status thrown = WithoutExceptions([&] {
      Endpoint* endpoint = fabric.endpoint(self);
      if (options.data_path) {
        data_paths[index] = options.data_path(program, self, endpoint);
        endpoint = data_paths[index].get();
      }
      const auto start = [&](bool) {
        came = true;
        made.arrive_and_wait();
        return epoch_s;
      };
      outcome =
          RunRank(program, self, rows.times[rows.row_of_replica[self.replica]],
                  endpoint, make_worker, options, start, &workers[index]);
      return absl::OkStatus();
    });
    if (!thrown.ok()) outcome.status = thrown;
    if (!came) made.arrive_and_drop();
    // A rank that knows of a deadlock has nothing more to give either.
    fabric.Leave(self, !outcome.status.ok() &&
                           outcome.status.code() !=
                               absl::StatusCode::kFailedPrecondition);
  };
  std::vector<std::thread> threads;
  // The ranks begin when all threads are there, or none does.
  std::latch decided(1);
  bool begins = false;
  const absl::Status started = WithoutExceptions([&] {
    for (size_t index = 0; index < outcomes.size(); ++index) {
      threads.emplace_back([&, index] {
        decided.wait();
        if (begins) run_rank(index);
      });
    }
    return absl::OkStatus();
  });
  begins = started.ok();
  decided.count_down();
  for (std::thread& thread : threads) thread.join();
  if (!started.ok()) {
    return Prefix(absl::StrCat("a thread for each of ", outcomes.size(),
                               " ranks: ", threads.size(), " could be started"),
                  started);
  }
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
