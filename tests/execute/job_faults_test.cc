// What users and machines do to processes that a file brings together: every
// process ends, with one exit code, and who is to blame is named.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/file.h"
#include "tests/support/execute_job.h"

namespace pipewright::job_faults_test {
namespace {

using testing::ExecuteJob;
using testing::SmallRun;

// Passes of seconds, without kernels.
std::vector<std::string> Slow(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"--schedule",
                                    "gpipe",
                                    "--pp",
                                    "2",
                                    "--microbatches",
                                    "1",
                                    "--forward",
                                    "4s",
                                    "--backward-input",
                                    "1s",
                                    "--backward-weight",
                                    "1s",
                                    "--p2p",
                                    "0s",
                                    "--clock",
                                    "paced",
                                    "--steps",
                                    "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("job: a rank that computes for longer than the time-out is not lost",
          "[execute][sockets]") {
  ExecuteJob job(2, Slow({"--timeout", "1"}));
  CHECK(job.Await() == std::vector<int>{0, 0});
  INFO(job.Err(0) << job.Err(1));
  CHECK(job.errors() == 0);
}

TEST_CASE("job: a process that falls silent is named after the time-out",
          "[execute][sockets]") {
  ExecuteJob job(4, SmallRun({"--pp", "4", "--steps", "1000", "--no-check",
                              "--timeout", "2"}));
  job.AwaitMeeting();
  job.Kill(2, SIGSTOP);
  for (const int process : {0, 1, 3}) {
    CHECK(job.Await(process) == 1);
    INFO(job.Err(process));
    CHECK(absl::StrContains(job.Err(process),
                            absl::StrCat("rank ", process, ", iteration ")));
  }
  CHECK(absl::StrContains(job.Err(0), "rank 2: no answer"));
  job.Kill(2, SIGKILL);
}

TEST_CASE("job: who is told to end tells the others", "[execute][sockets]") {
  for (const int victim : {0, 2}) {
    // Longer than the test may take.
    ExecuteJob job(4, SmallRun({"--pp", "4", "--steps", "1000", "--no-check",
                                "--timeout", "1000"}));
    job.AwaitMeeting();
    job.Kill(victim, SIGTERM);
    CHECK(job.Await() == std::vector<int>{1, 1, 1, 1});
    INFO(job.Err(0));
    CHECK(absl::StrContains(job.Err(0), "SIGTERM"));
    // On a busy machine it may not have begun.
    CHECK(
        (absl::StrContains(job.Err(victim),
                           absl::StrCat("rank ", victim, ", iteration ")) ||
         absl::StrContains(job.Err(victim),
                           absl::StrCat("rank ", victim, ": did not start"))));
  }
}

TEST_CASE("job: who is told to end before all are ready tells the others",
          "[execute][sockets]") {
  for (const int victim : {0, 2}) {
    ExecuteJob job(4, SmallRun({"--pp", "4", "--steps", "1000", "--no-check",
                                "--timeout", "1000"}));
    job.AwaitMeeting();
    // The others wait for this one, and the victim is told meanwhile.
    job.Kill(3, SIGSTOP);
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    job.Kill(victim, SIGTERM);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    job.Kill(3, SIGCONT);
    CHECK(job.Await() == std::vector<int>{1, 1, 1, 1});
    INFO(job.Err(victim));
    CHECK(absl::StrContains(job.Err(victim), "SIGTERM"));
  }
}

TEST_CASE("job: who is told to end while it waits for others ends",
          "[execute][sockets]") {
  ExecuteJob job(3, SmallRun({"--pp", "3", "--timeout", "1000"}), 1);
  for (int tries = 0; tries < 20000; ++tries) {
    if (absl::StrContains(absl::StrJoin(job.Files(), " "), "job")) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  job.Kill(0, SIGTERM);
  CHECK(job.Await() == std::vector<int>{1});
  CHECK(absl::StrContains(job.Err(0), "(SIGTERM) before all have come"));
  CHECK(job.Files() == std::vector<std::string>{"err0", "out0"});
}

TEST_CASE("job: what cannot be written is the error of all, and no file is",
          "[execute][sockets]") {
  const testing::TemporaryFolder folder;
  for (const std::string flag : {"--trace", "-o"}) {
    ExecuteJob job(2, SmallRun({"--pp", "2", "--steps", "1", "--svg",
                                folder.Path("grid.svg"), flag, "/dev/full"}));
    CHECK(job.Await() == std::vector<int>{1, 1});
    INFO(job.Err(0));
    CHECK(absl::StrContains(job.Err(0), "cannot write /dev/full"));
    CHECK(job.errors() == 1);
    CHECK(job.Out(0).empty());
    CHECK(folder.Files().empty());
  }
}

TEST_CASE("job: processes with other options do not begin",
          "[execute][sockets]") {
  struct Case {
    std::vector<std::string> own;
    const char* text;
    int code;
  };
  for (const Case& each : std::vector<Case>{
           {{"--microbatches", "8"}, "strategy.microbatches: 8", 2},
           {{"--steps", "2"}, "--steps 2", 2},
           {{"--train-seed", "7"}, "--train-seed 7", 2},
           {{"--set", "model.hidden=64"}, "model.hidden: 64", 2},
           {{"/nowhere.yaml"}, "process 1: cannot read", 2},
           {{"--schedule", "/nowhere.txt"}, "process 1: ", 2}}) {
    const std::vector<std::string> words = {"--model", "gpt-tiny",  "--pp",
                                            "2",       "--timeout", "20"};
    INFO(each.text);
    // Options are given once.
    std::map<int, std::vector<std::string>> own;
    for (const int process : {0, 1}) {
      std::vector<std::string>& options = own[process];
      for (const auto& [flag, value] :
           std::vector<std::pair<std::string, std::string>>{
               {"--microbatches", "4"},
               {"--steps", "1"},
               {"--train-seed", "1"},
               {"--schedule", "1f1b"}}) {
        if (process == 1 && each.own[0] == flag) continue;
        options.insert(options.end(), {flag, value});
      }
      if (process == 1) {
        options.insert(options.end(), each.own.begin(), each.own.end());
      }
    }
    ExecuteJob job(2, words, -1, own);
    CHECK(job.Await() == std::vector<int>{each.code, each.code});
    INFO(job.Err(0));
    CHECK(absl::StrContains(job.Err(0), each.text));
    CHECK(job.errors() == 1);
  }
}

TEST_CASE("job: two counts of processes are a wrong use at once",
          "[execute][sockets]") {
  ExecuteJob job(2, SmallRun({"--pp", "2"}), 1);
  job.Start({"--rank", "1", "--ranks", "3"});
  CHECK(job.Await() == std::vector<int>{2, 2});
  CHECK(absl::StrContains(job.Err(0), "--ranks: 2 is not allowed"));
  CHECK(absl::StrContains(job.Err(1), "--ranks: 3 is not allowed"));
}

TEST_CASE("job: a number that is there twice is a wrong use",
          "[execute][sockets]") {
  // Process 2 is missing, so that the others still listen.
  ExecuteJob job(3, SmallRun({"--pp", "3", "--timeout", "8"}), 2);
  job.Start({"--rank", "1", "--ranks", "3"});
  // Whichever came second.
  const int second = job.Await(1) == 2 ? 1 : 2;
  CHECK(job.Await(second) == 2);
  CHECK(absl::StrContains(job.Err(second),
                          "--rank: 1 is not allowed; another process"));
  CHECK(job.Await(0) == 1);
  CHECK(absl::StrContains(job.Err(0), "process 2 of 3 has not come"));
}

}  // namespace
}  // namespace pipewright::job_faults_test
