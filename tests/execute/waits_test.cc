// Ranks that nobody sees from outside, as processes are: what they make of it
// when nothing comes.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "execute/run/fixed_worker.h"
#include "execute/run/run_threads.h"
#include "execute/transport/steady_seconds.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/lowered_1f1b.h"

namespace pipewright::waits_test {
namespace {

// What the ends of one run have in common.
struct Watch {
  // The first token of all is kept back for so many answers; below 0: none is.
  int kept_for_answers = -1;
  std::atomic<int> answers{0};
  std::atomic<int> kept{0};

  // Long enough for the round of questions after it, short against a time-out.
  void AwaitAnswers(int count) const {
    while (answers < count) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
};

// In front of an end of the fabric, of which it uses nothing but messages.
class BlindEndpoint : public Endpoint {
 public:
  BlindEndpoint(Endpoint* control, Watch* watch)
      : control_(*control), watch_(*watch) {}
  ~BlindEndpoint() override {
    for (std::thread& thread : late_) thread.join();
  }

  void Send(Address to, RankMessage message) override {
    if (message.kind == RankMessage::Kind::kToken &&
        watch_.kept_for_answers >= 0 && watch_.kept.fetch_add(1) == 0) {
      late_.emplace_back([this, to, message = std::move(message)] {
        watch_.AwaitAnswers(watch_.kept_for_answers);
        control_.Send(to, message);
      });
      return;
    }
    const bool answers = message.kind == RankMessage::Kind::kAnswer;
    control_.Send(to, std::move(message));
    if (answers) ++watch_.answers;
  }
  Received Receive(double timeout_s, RankMessage* message) override {
    const double deadline_s = SteadySeconds() + timeout_s;
    while (true) {
      const Received received = control_.Receive(0, message);
      if (received == Received::kMessage) return received;
      if (SteadySeconds() >= deadline_s) return Received::kTimeOut;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  void Pending(int) override {}

 private:
  Endpoint& control_;
  Watch& watch_;
  std::vector<std::thread> late_;
};

// Its copies take until others have answered.
class SlowCopies : public FixedWorker {
 public:
  explicit SlowCopies(Watch* watch) : watch_(*watch) {}
  void Forget() override {
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
  }
  void StartCopy(Pass, int, std::function<void(absl::Status)> ended) override {
    threads_.emplace_back([this, ended = std::move(ended)] {
      watch_.AwaitAnswers(1);
      ended(absl::OkStatus());
    });
  }

 private:
  Watch& watch_;
  std::vector<std::thread> threads_;
};

using testing::Lowered;

absl::Status RunBlind(const Program& program, const MakeWorker& make_worker,
                      Watch* watch, const Faults& faults = {}) {
  ExecuteOptions options;
  options.clock = ClockKind::kReal;
  options.timeout_s = 1;
  options.faults = faults;
  options.data_path = [watch](const Program&, Address, Endpoint* control) {
    return std::make_unique<BlindEndpoint>(control, watch);
  };
  return RunThreads(program, make_worker, options).status();
}

absl::StatusOr<std::unique_ptr<Worker>> Fixed(Address) {
  return std::make_unique<FixedWorker>();
}

TEST_CASE("waits: a rank that waits for its own copy is not stuck",
          "[execute]") {
  const absl::StatusOr<Program> program = Lowered(2, /*copies=*/true);
  REQUIRE(program.ok());
  Watch watch;
  const absl::Status status = RunBlind(
      *program,
      [&](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
        if (self.rank > 0) return std::make_unique<FixedWorker>();
        return std::make_unique<SlowCopies>(&watch);
      },
      &watch);
  INFO(status);
  CHECK(status.ok());
  CHECK(watch.answers >= 1);
}

TEST_CASE("waits: a message on its way between others is no deadlock",
          "[execute]") {
  const absl::StatusOr<Program> program = Lowered(4, /*copies=*/false);
  REQUIRE(program.ok());
  Watch watch;
  watch.kept_for_answers = 3;  // answers to one question
  const absl::Status status = RunBlind(*program, Fixed, &watch);
  INFO(status);
  CHECK(status.ok());
  CHECK(watch.kept > 0);
}

// Longer than a time-out and the wait for answers after it.
TEST_CASE("waits: who waits for a date says so to who asks", "[execute]") {
  const absl::StatusOr<Program> program = Lowered(4, /*copies=*/false);
  REQUIRE(program.ok());
  Watch watch;
  Faults faults;
  faults.late_messages = {{.rank = 1, .seconds = 5}};
  const absl::Status status = RunBlind(*program, Fixed, &watch, faults);
  INFO(status);
  CHECK(status.ok());
  CHECK(watch.answers >= 3);
}

// One pass takes as long.
class SlowPass : public FixedWorker {
 public:
  absl::StatusOr<double> RunPass(Pass, int) override {
    if (!slept_) std::this_thread::sleep_for(std::chrono::seconds(4));
    slept_ = true;
    return 0.0;
  }

 private:
  bool slept_ = false;
};

absl::StatusOr<std::unique_ptr<Worker>> SlowSecond(Address self) {
  if (self.rank == 1) return std::make_unique<SlowPass>();
  return std::make_unique<FixedWorker>();
}

TEST_CASE("waits: who computes for longer than the time-out is not lost",
          "[execute]") {
  const absl::StatusOr<Program> program = Lowered(4, /*copies=*/false);
  REQUIRE(program.ok());
  for (const ClockKind clock : {ClockKind::kVirtual, ClockKind::kReal}) {
    const absl::Status status =
        RunThreads(*program, SlowSecond, {.clock = clock, .timeout_s = 0.5})
            .status();
    INFO(status);
    CHECK(status.ok());
  }
}

TEST_CASE("waits: who computes for much longer than that is given up",
          "[execute]") {
  const absl::StatusOr<Program> program = Lowered(4, /*copies=*/false);
  REQUIRE(program.ok());
  const absl::Status status =
      RunThreads(*program, SlowSecond, {.timeout_s = 0.2, .patience = 5})
          .status();
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(
      status.message(),
      "rank 1 lives, but has computed one thing for longer than 1 s"));
}

// Many passes that each take less than the others' patience.
class ManySlowPasses : public FixedWorker {
 public:
  absl::StatusOr<double> RunPass(Pass, int) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return 0.0;
  }
};

TEST_CASE("waits: who gets on is not given up, however long it takes",
          "[execute]") {
  ScheduleParams params;
  params.pp = 4;
  params.microbatches = 12;
  absl::StatusOr<Schedule> built = BuildSchedule("gpipe", params);
  REQUIRE(built.ok());
  LowerOptions lower;
  lower.costs = PassCosts::Uniform(1, 4, {});
  lower.iterations = 1;
  const absl::StatusOr<Program> program =
      Lower(std::make_shared<const Schedule>(*std::move(built)), lower);
  REQUIRE(program.ok());
  // Rank 0 sends to rank 1 alone and answers nobody for six seconds.
  const absl::Status status =
      RunThreads(*program,
                 [](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
                   if (self.rank == 0) {
                     return std::make_unique<ManySlowPasses>();
                   }
                   return std::make_unique<FixedWorker>();
                 },
                 {.timeout_s = 0.2, .patience = 20})
          .status();
  INFO(status);
  CHECK(status.ok());
}

TEST_CASE("waits: who has died beside one that computes is", "[execute]") {
  const absl::StatusOr<Program> program = Lowered(4, /*copies=*/false);
  REQUIRE(program.ok());
  ExecuteOptions options = {.timeout_s = 0.5};
  options.faults.death = {.rank = 0, .iteration = 0, .position = 1};
  const absl::Status status =
      RunThreads(*program, SlowSecond, options).status();
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StartsWith(status.message(), "rank 0: no answer"));
}

}  // namespace
}  // namespace pipewright::waits_test
