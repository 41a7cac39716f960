// Who waits for whom besides messages: iterations for what is left of the one
// before, ranks for the device that they share.
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "execute/run/fixed_worker.h"
#include "execute/train/training.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"
#include "tests/support/small_training.h"

namespace pipewright::turns_test {
namespace {

// Set by one rank, awaited by another.
class Flag {
 public:
  void Set() {
    std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool Await() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(20),
                             [this] { return set_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool set_ = false;
};

// Replica 1 does not step in iteration 0 before replica 0, whose gathers wait
// for that, has begun iteration 1.
class CrossedWorker : public FixedWorker {
 public:
  CrossedWorker(const Program& program, Address self, Flag* begun,
                std::atomic<bool>* crossed)
      : program_(program), self_(self), begun_(begun), crossed_(crossed) {}

  absl::Status BeginStart(const Start& start) override {
    if (self_.replica == 0 && start.iteration == 1) begun_->Set();
    return absl::OkStatus();
  }
  absl::StatusOr<double> RunSideOp(int32_t side_op,
                                   const Start& start) override {
    const SideOp& op = program_.ranks[self_.rank].side_ops[side_op];
    if (op.kind == OpKind::kOptimizer && self_.replica == 1 &&
        start.iteration == 0) {
      *crossed_ = begun_->Await();
    }
    return 0.0;
  }

 private:
  const Program& program_;
  const Address self_;
  Flag* const begun_;
  std::atomic<bool>* const crossed_;
};

TEST_CASE("execute: the next iteration begins beside pending gathers",
          "[execute]") {
  ScheduleParams params;
  params.pp = 1;
  params.microbatches = 4;
  absl::StatusOr<Schedule> built = BuildSchedule("1f1b", params);
  REQUIRE(built.ok());
  LowerOptions lower;
  lower.costs = PassCosts::Uniform(
      1, 1, {.forward_s = 1, .backward_input_s = 1, .backward_weight_s = 1});
  lower.gradient_bytes = {4};
  lower.parameter_bytes = {4};
  lower.data_parallel = DataParallel::kZero1;
  lower.optimizer = OptimizerMode::kSynchronised;
  lower.replicas = 2;
  lower.iterations = 2;
  const absl::StatusOr<Program> program =
      Lower(std::make_shared<const Schedule>(*std::move(built)), lower);
  REQUIRE(program.ok());
  for (const ClockKind clock : {ClockKind::kReal, ClockKind::kVirtual}) {
    Flag begun;
    std::atomic<bool> crossed = false;
    const absl::StatusOr<ExecutedRun> run =
        RunThreads(*program,
                   [&](Address self) {
                     return std::make_unique<CrossedWorker>(*program, self,
                                                            &begun, &crossed);
                   },
                   {.clock = clock});
    INFO(run.status());
    CHECK(run.ok());
    CHECK(crossed);
  }
}

TEST_CASE("execute: steps that run into each other train alike", "[execute]") {
  for (const DataParallel mode :
       {DataParallel::kDdp, DataParallel::kZero1, DataParallel::kFsdp}) {
    for (const char* name : {"1f1b", "zb-v"}) {
      INFO(name << " data parallel " << static_cast<int>(mode));
      absl::StatusOr<testing::SmallTraining> training =
          testing::MakeSmallTraining(name, 2, 2, WaitRule::kBuffered, 4, mode);
      REQUIRE(training.ok());
      // A snapshot would hold up the iteration.
      training->options.worker.snapshot_iterations = {3};
      training->options.execute.clock = ClockKind::kReal;
      const absl::StatusOr<TrainedRun> trained =
          TrainThreads(training->program, training->model, pw_cpu_kernels(),
                       training->options);
      INFO(trained.status());
      REQUIRE(trained.ok());
      CHECK(trained->records[0].snapshots.size() ==
            static_cast<size_t>(training->schedule->vpp()));
      CHECK(trained->check.ok());
    }
  }
}

// How many threads time something at once: every timed piece of work begins
// and ends with an event.
std::atomic<int> inside;
std::atomic<int> most_inside;
thread_local bool is_inside = false;

PwStatus CountingRecord(PwDevice* device, PwStream* stream, PwEvent* event) {
  is_inside = !is_inside;
  if (is_inside) {
    const int now = ++inside;
    int most = most_inside;
    while (now > most && !most_inside.compare_exchange_weak(most, now)) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } else {
    --inside;
  }
  return pw_cpu_kernels()->record(device, stream, event);
}

int MostAtOnce(std::shared_ptr<std::mutex> token) {
  absl::StatusOr<testing::SmallTraining> training =
      testing::MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  training->options.worker.token = std::move(token);
  training->options.check = false;
  PwKernels counting = *pw_cpu_kernels();
  counting.record = CountingRecord;
  inside = 0;
  most_inside = 0;
  const absl::StatusOr<TrainedRun> trained = TrainThreads(
      training->program, training->model, &counting, training->options);
  INFO(trained.status());
  REQUIRE(trained.ok());
  return most_inside;
}

TEST_CASE("execute: who holds the token is the only one that computes",
          "[execute]") {
  CHECK(MostAtOnce(std::make_shared<std::mutex>()) == 1);
  CHECK(MostAtOnce(nullptr) > 1);
}

}  // namespace
}  // namespace pipewright::turns_test
