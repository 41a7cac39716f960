// What the check against the sequential run finds, and what the activations
// are that a rank holds.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "execute/train/model_worker.h"
#include "execute/train/training.h"
#include "tests/support/small_training.h"

namespace pipewright::training_check_test {
namespace {

using testing::MakeSmallTraining;
using testing::SmallTraining;

struct Trained {
  SmallTraining training;
  std::vector<WorkerRecord> records;
  SequentialRun sequential;

  TrainingCheck Check(bool deterministic = true) const {
    return CheckTraining(training.program, training.model, records, sequential,
                         deterministic);
  }
};

Trained Train(const char* schedule, int dp = 1,
              DataParallel mode = DataParallel::kDdp, int iterations = 2) {
  Trained trained;
  trained.training =
      MakeSmallTraining(schedule, 2, dp, WaitRule::kBuffered, iterations, mode)
          .value();
  const SmallTraining& training = trained.training;
  absl::StatusOr<TrainedRun> run = TrainThreads(
      training.program, training.model, pw_cpu_kernels(), training.options);
  REQUIRE(run.ok());
  trained.records = run->records;
  trained.sequential =
      RunSequential(
          training.model, pw_cpu_kernels(), 0,
          SequentialOptionsFor(training.program, training.options.worker))
          .value();
  return trained;
}

TEST_CASE("execute: a lost bit fails the check where bits are owed",
          "[execute]") {
  for (const bool weights : {false, true}) {
    Trained trained = Train("1f1b");
    CHECK(trained.Check().ok());
    StageSnapshot& snapshot = trained.records[1].snapshots[0];
    float& value = (weights ? snapshot.weights : snapshot.gradients)[7];
    value = std::nextafter(value, 1.0f);
    const TrainingCheck check = trained.Check();
    CHECK(check.bits_owed);
    CHECK_FALSE(check.same_bits);
    CHECK_FALSE(check.ok());
    // A device that adds up as it likes is held to the tolerance.
    CHECK(trained.Check(/*deterministic=*/false).ok());
  }
  Trained trained = Train("1f1b");
  double& loss = trained.records[1].loss_sum[1];
  loss *= 1 + 1e-12;
  CHECK_FALSE(trained.Check().same_bits);
}

// Errors are relative to the largest gradient of the stage.
TEST_CASE("execute: a gradient that is off by 1e-4 fails in fp32",
          "[execute]") {
  for (const double error : {2e-6, 1e-4, 5e-2}) {
    Trained trained = Train("1f1b");
    StageSnapshot& snapshot = trained.records[1].snapshots[0];
    REQUIRE(snapshot.iteration == 0);
    float largest = 0;
    for (const float value : snapshot.gradients) {
      largest = std::max(largest, std::abs(value));
    }
    snapshot.gradients[7] += static_cast<float>(error * largest);
    // On a device that adds up as it likes: in bits it is off either way.
    const TrainingCheck check = trained.Check(/*deterministic=*/false);
    INFO("off by " << error << ", found " << check.first_gradient_error);
    CHECK(check.first_gradient_error == Approx(error).epsilon(0.1));
    CHECK(check.ok() == (error < 1e-5));
  }
}

TEST_CASE("execute: an optimizer that does nothing fails the check",
          "[execute]") {
  for (const char* schedule : {"1f1b", "dualpipev"}) {
    Trained trained = Train(schedule, 2);
    const TrainingCheck before = trained.Check(/*deterministic=*/false);
    INFO(schedule << " weights differ by " << before.weight_error);
    CHECK(before.ok());
    for (WorkerRecord& record : trained.records) {
      for (StageSnapshot& snapshot : record.snapshots) {
        snapshot.weights = trained.sequential.initial_weights[snapshot.stage];
      }
    }
    const TrainingCheck check = trained.Check(/*deterministic=*/false);
    CHECK(check.weight_error == Approx(1));
    CHECK_FALSE(check.ok());
    trained.training.model.shape.type = PW_BF16;
    const TrainingCheck half = trained.Check(/*deterministic=*/false);
    CHECK(half.weight_error == Approx(1));
    CHECK_FALSE(half.ok());
  }
}

TEST_CASE("execute: a NaN fails the check wherever it stands", "[execute]") {
  const Trained trained = Train("zb-h1");
  CHECK(trained.Check().ok());
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (size_t rank = 0; rank < trained.records.size(); ++rank) {
    const size_t snapshots = trained.records[rank].snapshots.size();
    for (size_t index = 0; index < snapshots; ++index) {
      for (const double place : {0.0, 0.5, 1.0}) {
        for (const bool weights : {false, true}) {
          Trained broken = trained;
          StageSnapshot& snapshot = broken.records[rank].snapshots[index];
          std::vector<float>& values =
              weights ? snapshot.weights : snapshot.gradients;
          const auto last = static_cast<double>(values.size() - 1);
          values[static_cast<size_t>(place * last)] = nan;
          INFO("rank " << rank << " snapshot " << index << " at " << place
                       << (weights ? " of the weights" : " of the gradients"));
          CHECK_FALSE(broken.Check(/*deterministic=*/false).ok());
        }
      }
    }
    for (auto& [iteration, sum] : trained.records[rank].loss_sum) {
      Trained broken = trained;
      broken.records[rank].loss_sum[iteration] = nan;
      CHECK_FALSE(broken.Check(/*deterministic=*/false).ok());
    }
  }
}

TEST_CASE("execute: a snapshot that is not there fails the check",
          "[execute]") {
  for (const DataParallel mode : {DataParallel::kDdp, DataParallel::kZero1}) {
    const Trained trained = Train("zb-v", 2, mode);
    CHECK(trained.Check().missing == 0);
    Trained lost = trained;
    lost.records[3].snapshots.pop_back();
    CHECK(lost.Check().missing == 1);
    CHECK_FALSE(lost.Check().ok());
    Trained twice = trained;
    twice.records[0].snapshots.push_back(twice.records[0].snapshots[0]);
    CHECK(twice.Check().missing == 1);
    Trained cut = trained;
    --cut.records[2].snapshots[0].end;
    CHECK(cut.Check().missing == 1);
    Trained none = trained;
    for (WorkerRecord& record : none.records) record.snapshots.clear();
    CHECK_FALSE(none.Check().ok());
    CHECK_FALSE(none.Check().same_bits);
  }
}

TEST_CASE("execute: of many steps the first and the last are kept",
          "[execute]") {
  const Trained trained = Train("zb-v", 1, DataParallel::kDdp, 6);
  const TrainingCheck check = trained.Check();
  CHECK(check.ok());
  CHECK(check.steps_in_full == std::vector<int>{0, 5});
  CHECK(check.losses.size() == 6);
  // Two stages a rank.
  CHECK(trained.records[0].snapshots.size() == 4);
  CHECK(trained.sequential.steps[3].weights.empty());
  CHECK(Train("1f1b", 1, DataParallel::kDdp, 3).Check().steps_in_full ==
        std::vector<int>{0, 1, 2});
}

TEST_CASE("execute: a loss that is not finite is an error without a check",
          "[execute]") {
  SmallTraining training =
      MakeSmallTraining("1f1b", 2, 1, WaitRule::kBuffered).value();
  training.options.check = false;
  training.options.worker.snapshot_iterations.clear();
  const auto train = [&] {
    return TrainThreads(training.program, training.model, pw_cpu_kernels(),
                        training.options)
        .status();
  };
  CHECK(train().ok());
  training.model.adam.learning_rate = std::numeric_limits<float>::max();
  const absl::Status lost = train();
  CHECK(lost.code() == absl::StatusCode::kDataLoss);
  CHECK(absl::StrContains(lost.message(), "the loss of step 1 is not finite"));
}

// Backwards that are left out free nothing, whatever the schedule says.
TEST_CASE("execute: a stage that never frees shows in the peak", "[execute]") {
  SmallTraining training =
      MakeSmallTraining("1f1b", 1, 1, WaitRule::kBuffered).value();
  const Schedule& schedule = *training.schedule;
  for (const bool leaks : {false, true}) {
    WorkerRecord record;
    training.options.worker.record = &record;
    absl::StatusOr<std::unique_ptr<ModelWorker>> worker =
        ModelWorker::Create(training.program, {}, training.model,
                            pw_cpu_kernels(), 0, training.options.worker);
    REQUIRE(worker.ok());
    REQUIRE((*worker)->BeginStart({}).ok());
    for (const Pass pass : schedule.order(0)) {
      (*worker)->BeginBlock(&pass, 1);
      if (!leaks || pass.kind() == PassKind::kForward) {
        REQUIRE((*worker)->RunPass(pass, 0).ok());
      }
      (*worker)->EndBlock(&pass, 1);
    }
    worker->reset();
    CHECK(record.peak_activations == (leaks ? schedule.microbatches : 1));
  }
}

}  // namespace
}  // namespace pipewright::training_check_test
