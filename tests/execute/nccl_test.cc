// The NCCL transport without NCCL: over threads and tests/support/fake_nccl.h,
// which watches the library's rules.
#include "execute/transport/nccl_transport.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/train/training.h"
#include "execute/transport/thread_transport.h"
#include "tests/support/fake_nccl.h"
#include "tests/support/run_binary.h"
#include "tests/support/small_training.h"

namespace pipewright::nccl_test {
namespace {

using testing::FakeNccl;
using testing::FakeNcclWorld;
using testing::MakeSmallTraining;
using testing::SmallTraining;

void Use(FakeNcclWorld*, TrainingOptions* options, bool own_thread,
         double timeout_s = 60) {
  options->execute.timeout_s = timeout_s;
  options->execute.data_path = [own_thread, timeout_s](const Program& program,
                                                       Address self,
                                                       Endpoint* control) {
    return std::make_unique<NcclEndpoint>(
        program, self, control,
        NcclOptions{.nccl = FakeNccl(),
                    .timeout_s = timeout_s,
                    .own_thread = own_thread});
  };
}

absl::StatusOr<TrainedRun> Train(const SmallTraining& training) {
  return TrainThreads(training.program, training.model, pw_cpu_kernels(),
                      training.options);
}

std::string Text(const CommPlan& plan) {
  std::string text = absl::StrCat(plan.group, ":");
  for (const Address& each : plan.members) {
    absl::StrAppend(&text, " ", each.replica, ".", each.rank);
  }
  return text;
}

TEST_CASE("nccl: a link for each direction, a communicator for each group",
          "[execute][nccl]") {
  const absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 2, 2, WaitRule::kBuffered);
  REQUIRE(training.ok());
  std::vector<std::string> plans;
  for (const CommPlan& plan : PlanComms(training->program)) {
    plans.push_back(Text(plan));
  }
  REQUIRE(plans.size() == 6);
  CHECK(plans[0] == "-1: 0.0 0.1");
  CHECK(plans[1] == "-1: 0.1 0.0");
  CHECK(plans[2] == "-1: 1.0 1.1");
  CHECK(plans[3] == "-1: 1.1 1.0");
  // The copies of a stage: ranks of one place in both replicas.
  CHECK(absl::EndsWith(plans[4], ": 0.0 1.0"));
  CHECK(absl::EndsWith(plans[5], ": 0.1 1.1"));
}

TEST_CASE("nccl: room for as many inputs as the order holds",
          "[execute][nccl]") {
  const absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  // 1F1B holds pp - rank microbatches (and 4 may be ahead).
  CHECK(BlocksHeld(training->program, 0) == 4 + 4);
  CHECK(BlocksHeld(training->program, 3) == 1 + 4);
}

TEST_CASE("nccl: the same bits as with threads", "[execute][nccl]") {
  struct Case {
    const char* schedule;
    int pp;
    int dp;
    WaitRule rule = WaitRule::kBuffered;
  };
  for (const auto& [schedule, pp, dp, rule] :
       {Case{"1f1b", 4, 1}, Case{"zb-v", 2, 1}, Case{"1f1b", 2, 2},
        Case{"zb-v", 2, 2}, Case{"dualpipe", 4, 1},
        Case{"gpipe", 2, 1, WaitRule::kRendezvous}}) {
    for (const bool own_thread : {false, true}) {
      INFO(schedule << " pp " << pp << " dp " << dp << " thread "
                    << own_thread);
      absl::StatusOr<SmallTraining> training =
          MakeSmallTraining(schedule, pp, dp, rule);
      REQUIRE(training.ok());
      const absl::StatusOr<TrainedRun> plain = Train(*training);
      INFO(plain.status());
      REQUIRE(plain.ok());
      FakeNcclWorld world;
      Use(&world, &training->options, own_thread);
      const absl::StatusOr<TrainedRun> run = Train(*training);
      INFO(run.status());
      REQUIRE(run.ok());
      CHECK(run->check.ok());
      const bool same = testing::BitsOf(*run) == testing::BitsOf(*plain);
      CHECK(same);
      CHECK(world.violations == std::vector<std::string>());
      CHECK(world.ran["send"] > 0);
      CHECK((world.ran["all_reduce"] > 0) ==
            (dp > 1 || absl::string_view(schedule) == "dualpipe"));
      // Every member leaves in good order.
      CHECK(world.made > 0);
      CHECK(world.left == world.made);
      CHECK(world.aborted == 0);
    }
  }
}

// Every transfer of a pass is one send: no more, no less.
TEST_CASE("nccl: as many sends as transfers of the schedule",
          "[execute][nccl]") {
  absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  FakeNcclWorld world;
  Use(&world, &training->options, true);
  REQUIRE(Train(*training).ok());
  const int links = 6;
  const int microbatches = 8;
  const int iterations = 2;
  CHECK(world.ran["send"] == links + links * microbatches * iterations);
}

TEST_CASE("nccl: what fails ends with the operations of every rank",
          "[execute][nccl]") {
  absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  for (const bool own_thread : {false, true}) {
    FakeNcclWorld world;
    // After the trial, in the run.
    world.fails = 2;
    world.fails_after = 5;
    Use(&world, &training->options, own_thread, 1);
    const absl::Status status = Train(*training).status();
    INFO(status);
    CHECK(status.code() == absl::StatusCode::kUnavailable);
    CHECK(absl::StrContains(status.message(), "NCCL"));
    for (int rank = 0; rank < 4; ++rank) {
      // Threads do not wait for each other before they start: some may not
      // have.
      bool named = false;
      for (const char* const how :
           {", iteration ", " has ended", ": did not start"}) {
        named |= absl::StrContains(status.message(),
                                   absl::StrCat("\nrank ", rank, how));
      }
      CHECK(named);
    }
    CHECK(absl::StrContains(status.message(), "waits for"));
    CHECK(world.aborted + world.left == world.made);
    CHECK(world.aborted > 0);
    CHECK(world.violations == std::vector<std::string>());
  }
}

TEST_CASE("nccl: a link that nobody answers ends in the time-out",
          "[execute][nccl]") {
  absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 2, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  FakeNcclWorld world;
  world.hangs = 1;
  Use(&world, &training->options, true, 0.5);
  const absl::Status status = Train(*training).status();
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(status.message(), "a first transfer goes on"));
  CHECK(absl::StrContains(status.message(), "rank 0: did not start"));
  CHECK(absl::StrContains(status.message(), "rank 1: did not start"));
  CHECK(world.aborted == world.made);
}

TEST_CASE("nccl: a message that is lost is told from a deadlock",
          "[execute][nccl]") {
  absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 4, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  FakeNcclWorld world;
  Use(&world, &training->options, true, 1);
  training->options.execute.faults.late_messages = {
      {.rank = 1, .number = 0, .seconds = -1}};
  const absl::Status status = Train(*training).status();
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(status.message(), "a message is lost"));
  CHECK(world.aborted == world.made);
}

TEST_CASE("nccl: a rank without a worker is known to the others at once",
          "[execute][nccl]") {
  const absl::StatusOr<SmallTraining> training =
      MakeSmallTraining("1f1b", 2, 1, WaitRule::kBuffered);
  REQUIRE(training.ok());
  FakeNcclWorld world;
  SmallTraining copy = *training;
  Use(&world, &copy.options, true, 1000);
  const MakeWorker make =
      [](Address self) -> absl::StatusOr<std::unique_ptr<Worker>> {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory on rank ", self.rank));
  };
  const absl::Status status =
      RunThreads(copy.program, make, copy.options.execute).status();
  CHECK(status.code() == absl::StatusCode::kResourceExhausted);
}

TEST_CASE("nccl: without the library it says what is missing",
          "[execute][nccl]") {
  ::setenv("PIPEWRIGHT_NCCL_LIBRARY", "/nowhere/libpipewright_nccl.so", 1);
  const absl::Status status = LoadNccl().status();
  ::unsetenv("PIPEWRIGHT_NCCL_LIBRARY");
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  CHECK(absl::StrContains(status.message(), "/nowhere/libpipewright_nccl.so"));
  CHECK(absl::StrContains(status.message(), "nccl.h"));
}

}  // namespace
}  // namespace pipewright::nccl_test
