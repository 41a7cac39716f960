#include "execute/run/replay.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "execute/run/fixed_worker.h"
#include "execute/run/rank_outcome.h"
#include "execute/transport/steady_seconds.h"
#include "execute/transport/transport.h"
#include "sim/base/status.h"
#include "sim/base/worst.h"
#include "sim/engine/isolated_times.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// The transport of a rank that runs alone: what others would send is known
// beforehand and there at once, with the time at which it comes. What the rank
// sends to others goes nowhere; what its own copies tell it arrives.
class ReplayEndpoint : public Endpoint {
 public:
  // `others` need nothing of the rank.
  ReplayEndpoint(Address self, const std::vector<Address>& others,
                 std::vector<RankMessage> messages);

  void Send(Address to, RankMessage message) override;
  Received Receive(double timeout_s, RankMessage* message) override;
  void Pending(int change) override;

 private:
  const Address self_;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<RankMessage> messages_;
  int pending_ = 0;
};

ReplayEndpoint::ReplayEndpoint(Address self, const std::vector<Address>& others,
                               std::vector<RankMessage> messages)
    : self_(self),
      messages_(std::make_move_iterator(messages.begin()),
                std::make_move_iterator(messages.end())) {
  for (const Address other : others) {
    messages_.push_back({.kind = RankMessage::Kind::kDone, .from = other});
  }
}

void ReplayEndpoint::Send(Address to, RankMessage message) {
  if (!(to == self_)) return;
  message.from = self_;
  {
    std::lock_guard lock(mutex_);
    messages_.push_back(std::move(message));
  }
  arrived_.notify_one();
}

Received ReplayEndpoint::Receive(double timeout_s, RankMessage* message) {
  std::unique_lock lock(mutex_);
  if (messages_.empty()) {
    if (timeout_s <= 0) return Received::kTimeOut;
    // Nothing comes but from the rank's own work.
    if (pending_ == 0) return Received::kStuck;
    const auto deadline = std::chrono::steady_clock::now() +
                          std::chrono::duration<double>(timeout_s);
    if (!arrived_.wait_until(lock, deadline,
                             [this] { return !messages_.empty(); })) {
      return Received::kTimeOut;
    }
  }
  *message = std::move(messages_.front());
  messages_.pop_front();
  return Received::kMessage;
}

void ReplayEndpoint::Pending(int change) {
  std::lock_guard lock(mutex_);
  pending_ += change;
}

struct Composed {
  ExecutedRun run;
  std::vector<RankRecord> records;  // [replica * pp + rank]
};

// All ranks in virtual time, with what those have taken that have run.
absl::StatusOr<Composed> Compose(
    const Program& program,
    const std::vector<std::unique_ptr<RankRecord>>& taken,
    const ReplayOptions& options) {
  Composed composed;
  composed.records.resize(static_cast<size_t>(program.replicas) * program.pp());
  ExecuteOptions execute = {.clock = ClockKind::kVirtual,
                            .takes_given = true,
                            .trace = options.trace,
                            .timeout_s = options.timeout_s,
                            .records = &composed.records};
  execute.faults.late_messages = options.faults.late_messages;
  for (const auto& record : taken) execute.takes.push_back(record.get());
  PW_ASSIGN_OR_RETURN(
      composed.run,
      RunThreads(
          program, [](Address) { return std::make_unique<FixedWorker>(); },
          execute));
  return composed;
}

// What a message is, apart from its time: those of a channel are in order.
using MessageName =
    std::tuple<RankMessage::Kind, int32_t, int32_t, int32_t, uint64_t, int64_t>;

std::map<MessageName, std::vector<double>> ArrivalsOf(
    const std::vector<RankMessage>& messages) {
  std::map<MessageName, std::vector<double>> arrivals;
  for (const RankMessage& each : messages) {
    arrivals[{each.kind, each.from.replica, each.from.rank, each.index,
              each.key, each.number}]
        .push_back(each.time_s);
  }
  return arrivals;
}

double LargestChange(const std::vector<RankMessage>& told,
                     const std::vector<RankMessage>& now) {
  const auto before = ArrivalsOf(told);
  double change_s = 0;
  for (const auto& [name, times_s] : ArrivalsOf(now)) {
    const auto found = before.find(name);
    if (found == before.end()) continue;
    // What a pipeline without flush sends in vain at the end of the run may
    // come after its receiver has ended.
    const size_t both = std::min(times_s.size(), found->second.size());
    for (size_t index = 0; index < both; ++index) {
      change_s =
          WorseOf(change_s, std::abs(times_s[index] - found->second[index]));
    }
  }
  return change_s;
}

// On a thread of its own, as ranks have it: kernels keep state by thread.
absl::Status RunAlone(const Program& program, int rank,
                      const IsolatedTimes& times, const MakeWorker& make_worker,
                      const ReplayOptions& options,
                      const std::vector<RankMessage>& messages,
                      RankRecord* taken, ReplayedRank* replayed) {
  const Address self = {.rank = rank};
  std::vector<RankRecord> records(static_cast<size_t>(program.replicas) *
                                  program.pp());
  ExecuteOptions execute = {.clock = options.clock,
                            .takes_given = options.takes_given,
                            .timeout_s = options.timeout_s,
                            .replays = true,
                            .records = &records};
  execute.faults.slow_passes = options.faults.slow_passes;
  ReplayEndpoint endpoint(self, OtherRanks(program, self), messages);
  RankOutcome outcome;
  std::thread thread([&] {
    const absl::Status thrown = WithoutExceptions([&] {
      std::unique_ptr<Worker> worker;
      outcome = RunRank(
          program, self, times, &endpoint, make_worker, execute,
          [](bool) { return SteadySeconds(); }, &worker);
      if (worker != nullptr) worker->Forget();
      return absl::OkStatus();
    });
    outcome.status.Update(thrown);
  });
  thread.join();
  if (outcome.status.code() == absl::StatusCode::kFailedPrecondition) {
    return absl::UnavailableError(
        absl::StrCat("replay: a message does not come, although the composed "
                     "run has announced it: ",
                     outcome.blocked));
  }
  PW_RETURN_IF_ERROR(outcome.status);
  *taken = std::move(records[rank]);
  replayed->rank = rank;
  replayed->times = outcome.result.times;
  replayed->preemptions = outcome.preemptions;
  replayed->late_s = 0;
  for (const RankRecord::Block& block : taken->compute) {
    replayed->late_s += block.late_s;
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ReplayedRun> Replay(const Program& program,
                                   const MakeWorker& make_worker,
                                   const ReplayOptions& options) {
  const double begin_s = SteadySeconds();
  const ReplicaRows rows = SortReplicas(program);
  const IsolatedTimes& times = rows.times[rows.row_of_replica[0]];
  ReplayedRun replayed;
  replayed.ranks.resize(options.ranks.size());
  std::vector<std::unique_ptr<RankRecord>> taken(program.pp());
  std::vector<std::vector<RankMessage>> told(options.ranks.size());
  while (replayed.passes < options.most_passes && !replayed.consistent) {
    ++replayed.passes;
    for (size_t index = 0; index < options.ranks.size(); ++index) {
      const int rank = options.ranks[index];
      PW_ASSIGN_OR_RETURN(Composed before, Compose(program, taken, options));
      told[index] = std::move(before.records[rank].messages);
      if (!options.times_known && replayed.passes == 1) {
        for (RankMessage& message : told[index]) message.time_s = 0;
      }
      auto record = std::make_unique<RankRecord>();
      PW_RETURN_IF_ERROR(RunAlone(program, rank, times, make_worker, options,
                                  told[index], record.get(),
                                  &replayed.ranks[index]));
      taken[rank] = std::move(record);
    }
    PW_ASSIGN_OR_RETURN(Composed after, Compose(program, taken, options));
    replayed.change_s = 0;
    for (size_t index = 0; index < options.ranks.size(); ++index) {
      ReplayedRank& each = replayed.ranks[index];
      each.change_s =
          LargestChange(told[index], after.records[each.rank].messages);
      replayed.change_s = std::max(replayed.change_s, each.change_s);
    }
    replayed.composed = std::move(after.run);
    replayed.consistent =
        options.clock == ClockKind::kVirtual ||
        replayed.change_s <=
            options.tolerance * replayed.composed.summary.iteration_s();
  }
  for (const ReplayedRank& each : replayed.ranks) {
    replayed.composed.preemptions += each.preemptions;
  }
  replayed.composed.wall_s = SteadySeconds() - begin_s;
  return replayed;
}

}  // namespace pipewright
