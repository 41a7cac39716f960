// Processes that a file brings together, without mpirun.
#include <signal.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::sockets_test {
namespace {

using testing::ExecuteJob;
using testing::SmallRun;

TEST_CASE("sockets: processes train what the sequential run trains",
          "[execute][sockets]") {
  ExecuteJob job(2, SmallRun({"--pp", "2", "--steps", "1", "--json"}));
  CHECK(job.Await() == std::vector<int>{0, 0});
  INFO(job.Err(0) << job.Err(1));
  const auto report = testing::Json::try_parse(job.Out(0));
  REQUIRE(report.is_object());
  CHECK(report["execute"]["transport"] == "sockets");
  CHECK(report["execute"]["check"]["same_bits"] == true);
  // What the other process has held comes over too: two microbatches in flight
  // on the first rank, one on the second.
  CHECK(report["peak_activations"].size() == 2);
  CHECK(report["peak_activations"] ==
        report["execute"]["predicted_peak_activations"]);
  CHECK(report["peak_activations"][1] > 0);
  // One speaks for all, and nothing is left behind.
  CHECK(job.Out(1).empty());
  CHECK(job.Files() ==
        std::vector<std::string>{"err0", "err1", "out0", "out1"});
}

TEST_CASE("sockets: a killed process ends the others with what they wait for",
          "[execute][sockets]") {
  ExecuteJob job(4, SmallRun({"--pp", "4", "--steps", "1000", "--no-check"}));
  job.AwaitMeeting();
  job.Kill(1, SIGKILL);
  const std::vector<int> codes = job.Await();
  CHECK(codes == std::vector<int>{1, -1, 1, 1});
  for (const int rank : {0, 2, 3}) {
    const std::string said = job.Err(rank);
    INFO(said);
    CHECK(absl::StrContains(said, "process 1 of the job is gone"));
    CHECK(absl::StrContains(said, absl::StrCat("rank ", rank)));
  }
}

TEST_CASE("sockets: what an earlier job has left does no harm",
          "[execute][sockets]") {
  testing::TemporaryFolder folder;
  // Nobody listens on that port, or nobody who knows the number.
  const std::string path = folder.Write(
      "job", absl::StrCat("pipewright-job 2\n", std::string(32, 'a'),
                          "\nmachine\n127.0.0.1\n9\n"));
  const auto arguments = [&](int rank) {
    return absl::StrCat("'", testing::BinaryPath(),
                        "' execute --schedule 1f1b --pp 2 --microbatches 2 "
                        "--model gpt-tiny --steps 1 --no-check --bootstrap "
                        "'file:",
                        path, "' --rank ", rank, " --ranks 2 > '",
                        folder.Path(absl::StrCat("out", rank)), "' 2>&1");
  };
  int codes[2] = {-1, -1};
  std::thread second([&] { codes[1] = std::system(arguments(1).c_str()); });
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  codes[0] = std::system(arguments(0).c_str());
  second.join();
  CHECK(codes[0] == 0);
  CHECK(codes[1] == 0);
}

TEST_CASE("sockets: who does not come is named", "[execute][sockets]") {
  ExecuteJob job(4, SmallRun({"--pp", "4", "--timeout", "5"}), /*started=*/3);
  CHECK(job.Await() == std::vector<int>{1, 1, 1});
  for (const int rank : {0, 1, 2}) {
    INFO(job.Err(rank));
    CHECK(absl::StrContains(job.Err(rank),
                            "process 3 of 4 has not come within 5 s"));
  }
}

TEST_CASE("sockets: options that do not go together", "[execute][sockets]") {
  struct Case {
    std::vector<std::string> options;
    const char* text;
  };
  for (const Case& each : std::vector<Case>{
           {{"--bootstrap", "job", "--rank", "0", "--ranks", "1"},
            "allowed: file:PATH"},
           {{"--bootstrap", "file:/tmp/job", "--rank", "2", "--ranks", "2"},
            "allowed: 0 to 1"},
           {{"--bootstrap", "file:/tmp/job"}, "--ranks: -1 is not allowed"},
           {{"--rank", "1"}, "together with --bootstrap"},
           {{"--listen", "lo"}, "together with --bootstrap"},
           {{"--bootstrap", "file:/nowhere/job", "--rank", "0", "--ranks", "1",
             "--listen", "eth77"},
            "--listen: eth77 is not allowed"},
           {{"--transport", "sockets"}, "--bootstrap file:PATH --rank R"},
           {{"--transport", "nccl"}, "nccl with --device cuda"},
           {{"--transport", "nccl", "--device", "cuda"}, "mpirun -n P"},
           {{"--transport", "pigeons"}, "pigeons"},
           {{"--transport", "threads", "--bootstrap", "file:/tmp/job", "--rank",
             "0", "--ranks", "1"},
            "sockets or nccl"}}) {
    std::vector<std::string> words = {"execute"};
    for (const std::string& word : SmallRun({"--pp", "2"}))
      words.push_back(word);
    words.insert(words.end(), each.options.begin(), each.options.end());
    const testing::BinaryResult result = testing::RunBinary(words);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(absl::StrContains(result.err, each.text));
  }
}

TEST_CASE("sockets: options of calibrate that do not fit", "[cli]") {
  const std::vector<std::string> job = {
      "--bootstrap", "file:/tmp/job", "--rank", "2", "--ranks", "2"};
  const struct {
    std::vector<std::string> options;
    const char* text;
  } rows[] = {
      {{}, "with --device cpu is not allowed; allowed: --device cuda"},
      {{"--device", "cuda", "--transport", "threads"},
       "threads with --bootstrap is not allowed; allowed: nccl"},
      {{"--device", "cuda"}, "--rank: 2 is not allowed; allowed: 0 to"}};
  for (const auto& [options, text] : rows) {
    std::vector<std::string> words = {"calibrate", "--model", "gpt-tiny"};
    words.insert(words.end(), job.begin(), job.end());
    words.insert(words.end(), options.begin(), options.end());
    const testing::BinaryResult result = testing::RunBinary(words);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(absl::StrContains(result.err, text));
  }
  CHECK(testing::RunBinary({"calibrate", "--model", "gpt-tiny", "--ranks", "2"})
            .exit_code == 2);
}

TEST_CASE("sockets: the wrong number of processes is a wrong use",
          "[execute][sockets]") {
  ExecuteJob job(3, SmallRun({"--pp", "2"}));
  CHECK(job.Await() == std::vector<int>{2, 2, 2});
  CHECK(absl::StrContains(job.Err(0), "--ranks: 3 is not allowed; allowed: 2"));
}

}  // namespace
}  // namespace pipewright::sockets_test
