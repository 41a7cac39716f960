// `execute` says before it runs what it takes of the machine: held against what
// the system has counted for its processes, and refused where there is too
// little.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/support/execute_job.h"
#include "tests/support/json.h"
#include "tests/support/mpirun.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::execute_room_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;
using testing::TemporaryFolder;
using testing::WordsOf;
using Words = std::vector<std::string>;

// Estimates may be off by this much, where some 150 MiB or more are needed:
// allocators and threads keep some 30 MiB.
constexpr double kTolerance = 0.2;

struct Peak {
  int exit_code = -1;
  double bytes = 0;     // the most that was resident, as the system says
  double together = 0;  // the most of all processes at a time, as seen
};

// Runs the processes of one job, one for each list of words, with at most so
// much address space each (0: any).
Peak PeakOf(const std::vector<Words>& processes, const std::string& out,
            const std::string& err, rlim_t most = 0) {
  std::vector<pid_t> pids;
  for (const Words& words : processes) {
    const pid_t pid = ::fork();
    REQUIRE(pid >= 0);
    if (pid == 0) {
      if (most > 0) {
        const struct rlimit limit = {most, most};
        ::setrlimit(RLIMIT_AS, &limit);
      }
      if (std::freopen(out.c_str(), pids.empty() ? "w" : "a", stdout) ==
              nullptr ||
          std::freopen(err.c_str(), "a", stderr) == nullptr) {
        ::_exit(127);
      }
      std::vector<char*> arguments;
      Words copy = words;
      for (std::string& word : copy) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    pids.push_back(pid);
  }
  Peak peak;
  // Processes have their peaks at different times. A zombie has no memory.
  double sum = 1;
  while (pids.size() > 1 && sum > 0) {
    sum = 0;
    for (const pid_t pid : pids) {
      const std::string statm =
          ReadFile(absl::StrCat("/proc/", pid, "/statm")).value_or("0 0");
      sum += 4096 * std::stod(Words(absl::StrSplit(statm, ' ')).at(1));
    }
    peak.together = std::max(peak.together, sum);
    ::usleep(2000);
  }
  for (const pid_t pid : pids) {
    int status = 0;
    struct rusage usage = {};
    ::wait4(pid, &status, 0, &usage);
    peak.exit_code =
        std::max(peak.exit_code, WIFEXITED(status) ? WEXITSTATUS(status) : 128);
    peak.bytes += 1024.0 * static_cast<double>(usage.ru_maxrss);
  }
  return peak;
}

Words Command(const std::string& options) {
  Words words = {testing::BinaryPath(), "execute", "--json"};
  for (const std::string& word : WordsOf(options)) words.push_back(word);
  return words;
}

// Weights decide; a step takes little.
constexpr char kWide[] =
    "--set model.layers=4 --set model.hidden=512 --set model.heads=8 "
    "--set model.ffn_hidden=2048 --set model.vocabulary=2048 "
    "--set model.sequence=16 --microbatches 2 --p2p 0ms --steps 2 ";
// Activations decide.
constexpr char kLong[] =
    "--set model.layers=4 --set model.hidden=64 --set model.heads=2 "
    "--set model.ffn_hidden=256 --set model.vocabulary=512 "
    "--set model.sequence=512 --microbatch-size 4 --p2p 0ms --steps 1 ";
constexpr char kNone[] =
    "--set model.layers=4 --set model.hidden=32 --set model.heads=2 "
    "--set model.ffn_hidden=64 --set model.vocabulary=61 "
    "--set model.sequence=16 --microbatches 2 --p2p 0ms --steps 1 "
    "--schedule 1f1b --pp 4";

// Sanitizers take memory of their own: [long] leaves these to plain builds.
TEST_CASE("execute: what it says it needs is what it takes",
          "[cli][execute][memory][long]") {
  const TemporaryFolder folder;
  const std::string out = folder.Path("out");
  const std::string err = folder.Path("err");
  const auto measure = [&](const std::string& options, double* needed) {
    const Peak peak = PeakOf({Command(options)}, out, err);
    INFO(options << ": " << ReadFile(err).value());
    REQUIRE(peak.exit_code == 0);
    *needed = Json::parse(ReadFile(out).value())["execute"]["needed_bytes"]
                  .get<double>();
    return peak.bytes;
  };
  // The program, its libraries and threads.
  double needed = 0;
  const double base = measure(kNone, &needed);
  CHECK(needed < 0.1 * base);
  for (const std::string& options : {
           absl::StrCat(kWide, "--schedule 1f1b --pp 4"),
           absl::StrCat(kWide, "--schedule 1f1b --pp 4 --no-check"),
           absl::StrCat(kWide,
                        "--schedule 1f1b --pp 4 --no-check "
                        "--no-reference"),
           absl::StrCat(kWide, "--schedule zb-v --pp 2 --no-reference"),
           absl::StrCat(kWide,
                        "--schedule 1f1b --pp 2 --dp 2 --no-reference "
                        "--data-parallel ddp"),
           absl::StrCat(kWide,
                        "--schedule 1f1b --pp 2 --dp 2 --no-reference "
                        "--data-parallel zero2"),
           absl::StrCat(kWide,
                        "--schedule pipedream-2bw --pp 2 "
                        "--no-reference"),
           absl::StrCat(kLong,
                        "--schedule gpipe --pp 2 --microbatches 8 "
                        "--no-check"),
           absl::StrCat(
               kLong,
               "--schedule gpipe --pp 2 --microbatches 8 --no-reference"),
           absl::StrCat(kWide, "--schedule 1f1b --pp 4 --replay-rank all"),
       }) {
    const double taken = measure(options, &needed) - base;
    INFO(options << ": " << needed / (1 << 20) << " MiB needed, "
                 << taken / (1 << 20) << " taken");
    CHECK(std::abs(needed / taken - 1) <= kTolerance);
  }
}

TEST_CASE("execute: processes of one machine need what they take together",
          "[cli][execute][memory][long]") {
  const TemporaryFolder folder;
  const std::string out = folder.Path("out");
  const std::string err = folder.Path("err");
  const auto measure = [&](const std::string& options, double* needed) {
    std::vector<Words> processes;
    for (int rank = 0; rank < 4; ++rank) {
      processes.push_back(Command(
          absl::StrCat(options, " --bootstrap file:", folder.Path("job"),
                       " --rank ", rank, " --ranks 4")));
    }
    const Peak peak = PeakOf(processes, out, err);
    INFO(options << ": " << ReadFile(err).value());
    REQUIRE(peak.exit_code == 0);
    *needed = Json::parse(ReadFile(out).value())["execute"]["needed_bytes"]
                  .get<double>();
    return peak.together;
  };
  double needed = 0;
  const double base = measure(kNone, &needed);
  for (const char* const options : {"", "--no-check --no-reference"}) {
    const double taken =
        measure(absl::StrCat(kWide, "--schedule 1f1b --pp 4 ", options),
                &needed) -
        base;
    INFO(options << ": " << needed / (1 << 20) << " MiB needed, "
                 << taken / (1 << 20) << " taken");
    CHECK(std::abs(needed / taken - 1) <= kTolerance);
  }
}

// The address space is limited, so that nothing is taken if it is not refused.
TEST_CASE("execute: what does not fit is refused before it runs",
          "[cli][execute][memory][long]") {
  const TemporaryFolder folder;
  const std::string out = folder.Path("out");
  const std::string err = folder.Path("err");
  const auto refused = [&](const std::string& options, rlim_t most) {
    CHECK(PeakOf({Command(options)}, out, err, most).exit_code == 3);
    const Json error = Json::parse(ReadFile(out).value())["error"];
    CHECK(error["exit"] == 3);
    return error["message"].get<std::string>();
  };
  const std::string large =
      refused("--schedule 1f1b --microbatches 8 --pp 4 --model llama3-70b",
              rlim_t{4} << 30);
  INFO(large);
  CHECK(absl::StartsWith(large, "4 ranks, while they "));
  CHECK(absl::StrContains(large, "; usable on "));
  CHECK(absl::StrContains(large, "allowed: a smaller model"));
  // It would train; what is checked behind does not fit.
  const std::string checks =
      refused(absl::StrCat(kWide, "--schedule 1f1b --pp 4 --reference"),
              rlim_t{700} << 20);
  INFO(checks);
  CHECK(absl::StrContains(checks, "usable on ulimit -v"));
  CHECK(absl::StrContains(checks, "allowed: --no-"));
}

TEST_CASE("execute: under mpirun one process says that all do not fit",
          "[cli][execute][memory][mpi]") {
  if (!testing::HaveMpirun()) return;
  const BinaryResult run = testing::RunBinaryUnderMpirun(
      2, WordsOf("execute --schedule 1f1b --microbatches 8 --pp 2 --model "
                 "llama3-405b"));
  INFO(run.err);
  CHECK(run.exit_code == 3);
  CHECK(absl::StrContains(run.err, "2 ranks on one machine, while they "));
  CHECK(absl::StrContains(run.err, "usable on the machine"));
}

}  // namespace
}  // namespace pipewright::execute_room_test
