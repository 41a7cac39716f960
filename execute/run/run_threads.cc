#include "execute/run/run_threads.h"

#include <algorithm>
#include <barrier>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "execute/run/rank_outcome.h"
#include "execute/run/rank_run.h"
#include "execute/transport/message.h"
#include "execute/transport/steady_seconds.h"
#include "execute/transport/thread_transport.h"
#include "sim/base/status.h"
#include "sim/engine/isolated_times.h"

namespace pipewright {
namespace {

Address AddressOf(const Program& program, size_t index) {
  return {static_cast<int32_t>(index / program.pp()),
          static_cast<int32_t>(index % program.pp())};
}

// The others of a rank that is given up end at once; what their threads do
// after so long is not known.
constexpr std::chrono::seconds kLastWords{1};

// Which ranks have ended, for who waits for all of them.
class Ends {
 public:
  explicit Ends(size_t ranks) : ended_(ranks, false) {}

  void GiveUp(const absl::Status& why) {
    std::lock_guard lock(mutex_);
    given_up_.Update(why);
    changed_.notify_all();
  }
  void Put(size_t index) {
    std::lock_guard lock(mutex_);
    ended_[index] = true;
    changed_.notify_all();
  }
  // Until all have, or one is given up and those that can have: which then
  // have not, and why; none and OK otherwise.
  std::pair<absl::Status, std::vector<size_t>> Wait() {
    std::unique_lock lock(mutex_);
    const auto all = [this] {
      return std::find(ended_.begin(), ended_.end(), false) == ended_.end();
    };
    changed_.wait(lock, [&] { return all() || !given_up_.ok(); });
    if (changed_.wait_for(lock, kLastWords, all)) return {};
    std::vector<size_t> left;
    for (size_t index = 0; index < ended_.size(); ++index) {
      if (!ended_[index]) left.push_back(index);
    }
    return {given_up_, left};
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status given_up_;
  std::vector<bool> ended_;
};

// With what is known of ranks that have not ended.
absl::Status GivenUp(const Program& program, const absl::Status& why,
                     const std::vector<size_t>& left,
                     const std::vector<RankOutcome>& outcomes) {
  std::vector<RankOutcome> known(outcomes.size());
  for (size_t index = 0; index < outcomes.size(); ++index) {
    RankOutcome& outcome = known[index];
    if (std::find(left.begin(), left.end(), index) == left.end()) {
      outcome.status = outcomes[index].status;
      outcome.blocked = outcomes[index].blocked;
      outcome.position = outcomes[index].position;
    } else {
      outcome.status = why;
      outcome.blocked =
          absl::StrCat(RankName(program, AddressOf(program, index)),
                       ": computes and sees nothing");
    }
    outcome.result.address = AddressOf(program, index);
  }
  return Verdict(program, known);
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
  summary.simulated_ops = 0;
  const std::vector<int> replicas = program.ReplicasOfClasses();
  for (int index = 0; index < program.num_classes(); ++index) {
    const DpClass& own = program.dp_class(index);
    summary.simulated_ops +=
        own.num_ops() * program.iterations * replicas[index];
  }
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
  Ends ends(outcomes.size());
  ExecuteOptions own = options;
  own.hopeless = [&ends](const absl::Status& why) { ends.GiveUp(why); };
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
                  endpoint, make_worker, own, start, &workers[index]);
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
        ends.Put(index);
      });
    }
    return absl::OkStatus();
  });
  begins = started.ok();
  decided.count_down();
  if (begins && options.hopeless) {
    const auto [why, left] = ends.Wait();
    if (!why.ok()) options.hopeless(GivenUp(program, why, left, outcomes));
  }
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
