// Ranks as processes under mpirun: the same bits as with threads, and an end
// with every rank's blocked operation whatever goes wrong.
#include <signal.h>

#include <catch2/catch.hpp>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/train/training.h"
#include "execute/transport/process_group.h"
#include "sim/base/file.h"
#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/small_training.h"

namespace pipewright::mpi_test {
namespace {

using testing::HaveMpirun;
using testing::MakeSmallTraining;
using testing::MpiRunner;
using testing::SmallTraining;

// What process `process` waited for stands in what it, or the speaker, said.
bool Waits(const std::string& said, int rank) {
  return absl::StrContains(said, absl::StrCat("rank ", rank, ", iteration ")) &&
         absl::StrContains(said, "waits for ");
}

// A run that goes on until somebody ends it.
std::vector<std::string> Endless(const std::string& timeout_s) {
  return {"--iterations", "1000000", "--timeout", timeout_s};
}

TEST_CASE("mpi: the same bits as with threads", "[execute][mpi]") {
  if (!HaveMpirun()) return;
  struct Case {
    const char* schedule;
    int pp;
    int dp;
  };
  for (const auto& [schedule, pp, dp] :
       {Case{"1f1b", 4, 1}, Case{"zb-v", 4, 1}, Case{"1f1b", 2, 2},
        Case{"zb-v", 2, 2}, Case{"dualpipe", 4, 1}}) {
    INFO(schedule << " pp " << pp << " dp " << dp);
    const absl::StatusOr<SmallTraining> training =
        MakeSmallTraining(schedule, pp, dp, WaitRule::kBuffered);
    REQUIRE(training.ok());
    const absl::StatusOr<TrainedRun> threads =
        TrainThreads(training->program, training->model, pw_cpu_kernels(),
                     training->options);
    REQUIRE(threads.ok());
    CHECK(threads->check.ok());
    MpiRunner runner(4, {"--schedule", schedule, "--pp", absl::StrCat(pp),
                         "--dp", absl::StrCat(dp)});
    runner.Await();
    INFO(runner.output());
    for (int process = 0; process < 4; ++process) {
      CHECK(runner.Read("said", process) == "ok");
      CHECK(runner.Read("exit", process) == "0");
    }
    // Not as an expression that would be printed.
    const bool same = runner.Read("bits", 0) == testing::BitsOf(*threads);
    CHECK(same);
  }
}

TEST_CASE("mpi: the same bits on two nodes", "[execute][mpi][nodes]") {
  if (!HaveMpirun()) return;
  for (const char* schedule : {"1f1b", "zb-v"}) {
    INFO(schedule);
    const absl::StatusOr<SmallTraining> training =
        MakeSmallTraining(schedule, 4, 1, WaitRule::kBuffered);
    REQUIRE(training.ok());
    const absl::StatusOr<TrainedRun> threads =
        TrainThreads(training->program, training->model, pw_cpu_kernels(),
                     training->options);
    REQUIRE(threads.ok());
    MpiRunner runner(4, {"--schedule", schedule}, 1, 2);
    runner.Await();
    INFO(runner.output());
    for (int process = 0; process < 4; ++process) {
      CHECK(runner.Read("said", process) == "ok");
      CHECK(runner.Read("exit", process) == "0");
      CHECK(runner.Read("local", process) == absl::StrCat(process % 2));
    }
    const bool same = runner.Read("bits", 0) == testing::BitsOf(*threads);
    CHECK(same);
  }
}

TEST_CASE("mpi: a process killed on another node ends those of all",
          "[execute][mpi][nodes]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, Endless("60"), 4, 2);
  for (int process = 0; process < 4; ++process) runner.Pid(process);
  ::kill(runner.Pid(3), SIGKILL);
  runner.Await();
  INFO(runner.output());
  CHECK(runner.Read("exit", 3) == "");
  // Open MPI itself may end those whose connection breaks, without a word;
  // the others say what they wait for. Nobody goes on, and nobody succeeds.
  for (const int process : {0, 1, 2}) {
    const std::string said = runner.Read("said", process);
    const std::string exit = runner.Read("exit", process);
    INFO(process << " exit " << exit << ": " << said);
    CHECK(exit != "0");
    CHECK((exit != "1" ||
           absl::StrContains(said, absl::StrCat("rank ", process))));
  }
}

TEST_CASE("mpi: a killed process ends the others with what they wait for",
          "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, Endless("60"), 4);
  for (int process = 0; process < 4; ++process) runner.Pid(process);
  ::kill(runner.Pid(2), SIGKILL);
  runner.Await();
  INFO(runner.output());
  CHECK(runner.Read("exit", 2) == "");
  for (const int process : {0, 1, 3}) {
    const std::string said = runner.Read("said", process);
    INFO(said);
    CHECK(absl::StrContains(said, "SIGTERM"));
    CHECK(absl::StrContains(said, absl::StrCat("rank ", process)));
    CHECK(runner.Read("speaks", process) == "yes");
    CHECK(runner.Read("exit", process) == "1");
  }
}

TEST_CASE("mpi: a rank that kills itself in the middle of a step",
          "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, {"--dies", "2"}, 4);
  runner.Await();
  INFO(runner.output());
  for (const int process : {0, 1, 3}) {
    const std::string said = runner.Read("said", process);
    INFO(said);
    CHECK(absl::StrContains(said, "SIGTERM"));
    CHECK(Waits(said, process));
    CHECK(runner.Read("exit", process) == "1");
  }
}

TEST_CASE("mpi: a process that falls silent is named after the time-out",
          "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, Endless("1"), 4);
  for (int process = 0; process < 4; ++process) runner.Pid(process);
  ::kill(runner.Pid(2), SIGSTOP);
  runner.Await();
  INFO(runner.output());
  for (const int process : {0, 1, 3}) {
    INFO(runner.Read("said", process));
    CHECK(runner.Read("exit", process) == "1");
  }
  const std::string said = runner.Read("said", 0);
  INFO(said);
  CHECK(absl::StrContains(said, "rank 2"));
}

TEST_CASE("mpi: a lost message is told from a deadlock", "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, {"--drop", "1", "--timeout", "1"});
  runner.Await();
  INFO(runner.output());
  const std::string said = runner.Read("said", 0);
  INFO(said);
  CHECK(absl::StrContains(said, "a message is lost"));
  for (int process = 0; process < 4; ++process) {
    CHECK(runner.Read("exit", process) == "1");
    CHECK(Waits(said, process));
    CHECK(runner.Read("speaks", process) == (process == 0 ? "yes" : "no"));
  }
}

TEST_CASE("mpi: an order that deadlocks is the schedule's fault",
          "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, {"--rendezvous", "--timeout", "1"});
  runner.Await();
  INFO(runner.output());
  const std::string said = runner.Read("said", 0);
  INFO(said);
  CHECK(absl::StrContains(said, "deadlock (rendezvous transfers)"));
  CHECK(absl::StrContains(said, "rank 0: ... F1"));
  for (int process = 0; process < 4; ++process) {
    CHECK(runner.Read("exit", process) == "4");
    CHECK(Waits(said, process));
  }
}

TEST_CASE("mpi: a long warm-up of process 0 is no loss", "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, {"--start", "4", "--timeout", "1"});
  runner.Await();
  INFO(runner.output());
  for (int process = 0; process < 4; ++process) {
    CHECK(runner.Read("said", process) == "ok");
    CHECK(runner.Read("exit", process) == "0");
  }
}

// In the middle of a pass, and when all others have ended and told process 0.
TEST_CASE("mpi: a rank that computes for longer than the time-out is not lost",
          "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, {"--slow", "5", "--timeout", "1"});
  runner.Await();
  INFO(runner.output());
  for (int process = 0; process < 4; ++process) {
    CHECK(runner.Read("said", process) == "ok");
    CHECK(runner.Read("exit", process) == "0");
  }
}

TEST_CASE("mpi: what one process throws is the error of all",
          "[execute][mpi]") {
  if (!HaveMpirun()) return;
  for (const char* const where : {"first", "conclude", "last"}) {
    INFO(where);
    MpiRunner runner(4, {"--throws", where});
    runner.Await();
    INFO(runner.output());
    CHECK(absl::StrContains(runner.Read("said", 0), "out of memory"));
    for (int process = 0; process < 4; ++process) {
      CHECK(runner.Read("exit", process) == "1");
      CHECK(runner.Read("speaks", process) == (process == 0 ? "yes" : "no"));
    }
  }
}

TEST_CASE("mpi: a process that dies while process 0 concludes is no success",
          "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(4, {"--conclude", "30"}, 4);
  runner.Await();
  INFO(runner.output());
  const std::string said = runner.Read("said", 0);
  INFO(said);
  CHECK(absl::StrContains(said, "SIGTERM"));
  CHECK(absl::StrContains(said, "rank 0: has ended and concludes"));
  CHECK(runner.Read("exit", 0) == "1");
}

TEST_CASE("mpi: the wrong number of processes is a wrong use",
          "[execute][mpi]") {
  if (!HaveMpirun()) return;
  MpiRunner runner(3, {});
  runner.Await();
  INFO(runner.output());
  for (int process = 0; process < 3; ++process) {
    CHECK(runner.Read("said", process) ==
          "mpirun -n: 3 is not allowed; allowed: 4 (dp 1 x pp 4)");
    CHECK(runner.Read("exit", process) == "2");
  }
}

TEST_CASE("mpi: without the library it says what is missing",
          "[execute][mpi]") {
  ::setenv("PIPEWRIGHT_MPI_LIBRARY", "/nowhere/libpipewright_mpi.so", 1);
  const absl::Status status = ProcessGroup::Create().status();
  ::unsetenv("PIPEWRIGHT_MPI_LIBRARY");
  CHECK(status.code() == absl::StatusCode::kUnavailable);
  INFO(status);
  CHECK(absl::StrContains(status.message(), "/nowhere/libpipewright_mpi.so"));
  CHECK(absl::StrContains(status.message(), "libopenmpi-dev"));
}

}  // namespace
}  // namespace pipewright::mpi_test
