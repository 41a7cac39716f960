// Copies on threads of their own, and the run that started them.
#include <catch2/catch.hpp>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "execute/run/fixed_worker.h"
#include "execute/run/rank_outcome.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/random_schedule.h"

namespace pipewright::copies_test {
namespace {

// One rank's. Whoever tells of a copy stays inside Send until the run is over,
// as a thread does that the system lets wait.
class LateEndpoint : public Endpoint {
 public:
  void Send(Address, RankMessage message) override {
    std::unique_lock lock(mutex_);
    const bool copied = message.kind == RankMessage::Kind::kCopied;
    messages_.push_back(std::move(message));
    changed_.notify_all();
    if (copied) changed_.wait(lock, [this] { return over_; });
  }
  Received Receive(double timeout_s, RankMessage* message) override {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, std::chrono::duration<double>(timeout_s),
                           [this] { return !messages_.empty(); })) {
      return Received::kTimeOut;
    }
    *message = std::move(messages_.front());
    messages_.pop_front();
    return Received::kMessage;
  }
  void Pending(int change) override {
    std::lock_guard lock(mutex_);
    pending_ += change;
  }
  void EndRun() {
    std::lock_guard lock(mutex_);
    over_ = true;
    changed_.notify_all();
  }
  int pending() {
    std::lock_guard lock(mutex_);
    return pending_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<RankMessage> messages_;
  bool over_ = false;
  int pending_ = 0;
};

class CopyingWorker : public FixedWorker {
 public:
  explicit CopyingWorker(std::vector<std::thread>* threads)
      : threads_(*threads) {}
  void StartCopy(Pass, int, std::function<void(absl::Status)> ended) override {
    threads_.emplace_back(std::move(ended), absl::OkStatus());
  }

 private:
  std::vector<std::thread>& threads_;
};

// Whatever still reads what RunRank has left on the stack reads this.
[[gnu::noinline]] void OverwriteStack() {
  volatile char garbage[1 << 16];
  for (volatile char& byte : garbage) byte = 0x5a;
}

TEST_CASE("execute: a run may be over before the threads of its copies",
          "[execute]") {
  ScheduleParams params;
  params.pp = 1;
  params.microbatches = 4;
  const absl::StatusOr<Schedule> built = BuildSchedule("1f1b", params);
  REQUIRE(built.ok());
  Random random(3);
  LowerOptions options;
  options.costs = PassCosts::Uniform(1, 1, {});
  const absl::StatusOr<Program> program = Lower(
      std::make_shared<const Schedule>(WithCopies(*built, random)), options);
  REQUIRE(program.ok());
  const ReplicaRows rows = SortReplicas(*program);
  LateEndpoint endpoint;
  std::vector<std::thread> copies;
  std::unique_ptr<Worker> worker;
  const RankOutcome outcome = RunRank(
      *program, {}, rows.times[0], &endpoint,
      [&](Address) { return std::make_unique<CopyingWorker>(&copies); },
      {.clock = ClockKind::kReal}, [](bool) { return 0.0; }, &worker);
  OverwriteStack();
  CHECK(outcome.status.ok());
  CHECK(copies.size() >= 4);
  CHECK(endpoint.pending() == static_cast<int>(copies.size()));
  endpoint.EndRun();
  for (std::thread& copy : copies) copy.join();
  CHECK(endpoint.pending() == 0);
}

}  // namespace
}  // namespace pipewright::copies_test
