// What is thrown on a thread that the executor has started is an error of the
// run, not the end of the process.
#include <atomic>
#include <catch2/catch.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/run/fixed_worker.h"
#include "execute/run/replay.h"
#include "execute/run/run_threads.h"
#include "execute/train/work_thread.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/lowered_1f1b.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::thrown_test {
namespace {

using testing::Lowered;

// What copies have told, in order.
class Told {
 public:
  WorkThread::Ended Next() {
    return [this](absl::Status status) {
      std::lock_guard lock(mutex_);
      all_.push_back(std::move(status));
      changed_.notify_all();
    };
  }
  std::vector<absl::Status> Await(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return all_.size() >= count; });
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<absl::Status> all_;
};

TEST_CASE("thrown: by a copy is the copy's error, and the next one runs",
          "[execute]") {
  Told told;
  WorkThread engine;
  engine.Start([]() -> absl::Status { throw std::bad_alloc(); }, told.Next());
  engine.Start([] { return absl::OkStatus(); },
               [](absl::Status) { throw std::bad_alloc(); });
  engine.Start([] { return absl::OkStatus(); }, told.Next());
  const std::vector<absl::Status> all = told.Await(2);
  CHECK(all[0] == absl::InternalError("out of memory"));
  CHECK(all[1].ok());
}

// Copies on a thread, the first of which throws.
class ThrowingCopies : public FixedWorker {
 public:
  void Forget() override { engine_.reset(); }
  void StartCopy(Pass, int, std::function<void(absl::Status)> ended) override {
    engine_->Start(
        [this]() -> absl::Status {
          if (!thrown_.exchange(true)) throw std::bad_alloc();
          return absl::OkStatus();
        },
        std::move(ended));
  }

 private:
  std::atomic<bool> thrown_{false};
  std::unique_ptr<WorkThread> engine_ = std::make_unique<WorkThread>();
};

TEST_CASE("thrown: by a copy of a rank ends the run of all", "[execute]") {
  const absl::StatusOr<Program> program = Lowered(2, /*copies=*/true);
  REQUIRE(program.ok());
  const absl::Status status =
      RunThreads(*program,
                 [](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
                   if (self.rank == 0) return std::make_unique<FixedWorker>();
                   return std::make_unique<ThrowingCopies>();
                 },
                 {.clock = ClockKind::kReal, .timeout_s = 3600})
          .status();
  CHECK(status == absl::InternalError("out of memory"));
}

// Throws where nothing of a rank's run is around it.
class ThrowingEndpoint : public Endpoint {
 public:
  ThrowingEndpoint(Endpoint* control, std::string where)
      : control_(*control), where_(std::move(where)) {}
  absl::Status Connect(DeviceMemory*) override {
    if (where_ == "connect") throw std::runtime_error("connect");
    return absl::OkStatus();
  }
  absl::Status Disconnect(bool) override {
    if (where_ == "disconnect") throw std::runtime_error("disconnect");
    return absl::OkStatus();
  }
  void Send(Address to, RankMessage message) override {
    control_.Send(to, std::move(message));
  }
  Received Receive(double timeout_s, RankMessage* message) override {
    return control_.Receive(timeout_s, message);
  }
  void Pending(int change) override { control_.Pending(change); }

 private:
  Endpoint& control_;
  const std::string where_;
};

TEST_CASE("thrown: around a rank's run is an error of the run", "[execute]") {
  const absl::StatusOr<Program> program = Lowered(4, /*copies=*/false);
  REQUIRE(program.ok());
  for (const std::string where : {"make", "connect", "disconnect"}) {
    ExecuteOptions options = {.timeout_s = 3600};
    options.data_path = [&](const Program&, Address self, Endpoint* control) {
      if (self.rank != 2)
        return std::make_unique<ThrowingEndpoint>(control, "");
      if (where == "make") throw std::runtime_error("make");
      return std::make_unique<ThrowingEndpoint>(control, where);
    };
    const absl::Status status =
        RunThreads(
            *program, [](Address) { return std::make_unique<FixedWorker>(); },
            options)
            .status();
    INFO(where << ": " << status);
    CHECK(status == absl::InternalError(where));
  }
}

class ThrowingEnd : public FixedWorker {
 public:
  void Forget() override { throw std::runtime_error("forget"); }
};

TEST_CASE("thrown: by a rank that runs alone is an error of the replay",
          "[execute]") {
  const absl::StatusOr<Program> program = Lowered(2, /*copies=*/false);
  REQUIRE(program.ok());
  const absl::Status status =
      Replay(*program, [](Address) { return std::make_unique<ThrowingEnd>(); },
             {.clock = ClockKind::kVirtual, .ranks = {0, 1}})
          .status();
  CHECK(status == absl::InternalError("forget"));
}

// Address sanitizer takes more addresses than any limit would leave.
#if !defined(PIPEWRIGHT_SANITIZED) && !defined(__SANITIZE_THREAD__)
TEST_CASE("thrown: too few threads are an error with their number",
          "[execute]") {
  const testing::BinaryResult run = testing::RunProgram(
      {"sh", "-c",
       absl::StrCat("ulimit -v 4000000; exec '", testing::BinaryPath(),
                    "' execute --schedule gpipe --pp 2000 --microbatches 1 "
                    "--forward 1ms --backward-input 1ms --backward-weight 1ms "
                    "--p2p 0ms --clock paced --steps 1 --timeout 20")});
  INFO(run.err);
  CHECK(run.exit_code == 1);
  CHECK(absl::StrContains(run.err, "a thread for each of 2000 ranks: "));
}
#endif

}  // namespace
}  // namespace pipewright::thrown_test
