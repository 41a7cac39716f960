// What goes wrong with threads ends at once: nobody waits for a time-out.
#include "execute/run/faults.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/train/training.h"
#include "tests/support/small_training.h"

namespace pipewright::faults_test {
namespace {

absl::Status Train(WaitRule wait_rule, const Faults& faults) {
  absl::StatusOr<testing::SmallTraining> training =
      testing::MakeSmallTraining("1f1b", 4, 1, wait_rule);
  REQUIRE(training.ok());
  // Longer than any test may take.
  training->options.execute.timeout_s = 3600;
  training->options.execute.faults = faults;
  return TrainThreads(training->program, training->model, pw_cpu_kernels(),
                      training->options)
      .status();
}

void CheckWaits(const absl::Status& status, const std::vector<int>& ranks) {
  for (const int rank : ranks) {
    INFO(status.message() << "\nrank " << rank);
    CHECK(absl::StrContains(status.message(),
                            absl::StrCat("\nrank ", rank, ", iteration ")));
  }
}

TEST_CASE("faults: a thread that ends is a lost rank", "[execute]") {
  for (int rank = 0; rank < 4; ++rank) {
    Faults faults;
    faults.death = {.rank = rank, .iteration = 1, .position = 2};
    const absl::Status status = Train(WaitRule::kBuffered, faults);
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StartsWith(status.message(),
                           absl::StrCat("rank ", rank, ": no answer")));
    std::vector<int> others;
    for (int other = 0; other < 4; ++other) {
      if (other != rank) others.push_back(other);
    }
    CheckWaits(status, others);
  }
}

TEST_CASE("faults: a message that is dropped is told from a deadlock",
          "[execute]") {
  for (int rank = 0; rank < 4; ++rank) {
    Faults faults;
    faults.late_messages = {
        {.rank = rank, .iteration = 0, .number = 1, .seconds = -1}};
    const absl::Status status = Train(WaitRule::kBuffered, faults);
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StartsWith(status.message(), "a message is lost"));
    CheckWaits(status, {0, 1, 2, 3});
  }
}

TEST_CASE("faults: an order that deadlocks comes with the grid", "[execute]") {
  const absl::Status status = Train(WaitRule::kRendezvous, {});
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kFailedPrecondition);
  CHECK(absl::StrContains(status.message(), "rank 0: ... F1"));
  CheckWaits(status, {0, 1, 2, 3});
}

}  // namespace
}  // namespace pipewright::faults_test
