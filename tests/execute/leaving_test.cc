// Processes that end while the others wait for one that is late: all end at
// once, without waiting for that one, and who left is named.
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "execute/run/fixed_worker.h"
#include "execute/run/run_processes.h"
#include "execute/transport/process_group.h"
#include "execute/transport/socket_job.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "sim/base/status.h"
#include "sim/program/program.h"
#include "tests/support/run_binary.h"
#include "tests/support/small_training.h"

namespace pipewright::leaving_test {
namespace {

using testing::TemporaryFolder;

constexpr int kProcesses = 4;
constexpr int kLate = 3;
// Timeout of the job. Whoever waits until it is over says so.
constexpr double kTimeout_s = 600;
// Timeout of the test: what hangs fails.
constexpr int kMostNaps = 60'000;

// Where the last process keeps the others waiting.
constexpr char kAgree[] = "agree";
constexpr char kReady[] = "ready";
// Process 2 goes without an error after the agreement.
constexpr char kDeserts[] = "deserts";
constexpr int kDeserter = 2;

void Nap() { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }

// What processes tell each other by files "name.process" of a folder.
class Notes {
 public:
  explicit Notes(std::string folder) : folder_(std::move(folder)) {}
  std::string Read(const char* name, int process) const {
    return ReadFile(PathOf(name, process)).value_or("");
  }
  void Write(const char* name, int process, const std::string& text) const {
    const std::string path = PathOf(name, process);
    std::ofstream(path + ".part") << text;
    ::rename((path + ".part").c_str(), path.c_str());
  }
  std::string PathOf(const char* name, int process) const {
    return absl::StrCat(folder_, "/", name, ".", process);
  }

 private:
  const std::string folder_;
};

absl::Status RunOne(const Notes& notes, int process, const std::string& phase) {
  PW_ASSIGN_OR_RETURN(
      const testing::SmallTraining training,
      testing::MakeSmallTraining("1f1b", kProcesses, 1, WaitRule::kBuffered));
  PW_ASSIGN_OR_RETURN(const auto job,
                      CreateSocketJob({.path = notes.PathOf("job", 0),
                                       .process = process,
                                       .processes = kProcesses}));
  const auto comes_to = [&](const char* here) {
    if (here != phase) return;
    notes.Write("there", process, "there");
    while (process == kLate && notes.Read("go", kLate).empty()) Nap();
  };
  ExecuteOptions options;
  options.timeout_s = kTimeout_s;
  PW_RETURN_IF_ERROR(
      FirstOfAll(job.get(), kTimeout_s, [&]() -> absl::StatusOr<FirstWord> {
        comes_to(kAgree);
        return FirstWord();
      }).status());
  if (phase == kDeserts && process == kDeserter) {
    job->Abandon();
    return absl::OkStatus();
  }
  PW_RETURN_IF_ERROR(
      RunProcesses(
          job.get(), training.program,
          [&](Address) -> absl::StatusOr<std::unique_ptr<Worker>> {
            comes_to(kReady);
            return std::make_unique<FixedWorker>();
          },
          options, RunReports())
          .status());
  return LastOfAll(job.get(), training.program, options,
                   [] { return absl::OkStatus(); });
}

// The case below runs in a process of its own, as threads do not survive fork.
TEST_CASE("leaving: a process of the job", "[.]") {
  const char* const folder = ::getenv("LEAVING_FOLDER");
  const char* const phase = ::getenv("LEAVING_PHASE");
  const char* const number = ::getenv("LEAVING_PROCESS");
  if (folder == nullptr || phase == nullptr || number == nullptr) return;
  const Notes notes(folder);
  const int process = ::atoi(number);
  const absl::Status status =
      WithoutExceptions([&] { return RunOne(notes, process, phase); });
  notes.Write("said", process,
              status.ok() ? "ok" : std::string(status.message()));
  ::_exit(ExitCode(status));
}

class Job {
 public:
  explicit Job(const char* phase) : notes_(folder_.Path("")) {
    for (int process = 0; process < kProcesses; ++process) {
      const pid_t pid = ::fork();
      PW_CHECK(pid >= 0);
      if (pid > 0) {
        pids_.push_back(pid);
        continue;
      }
      ::setenv("LEAVING_FOLDER", folder_.Path("").c_str(), 1);
      ::setenv("LEAVING_PHASE", phase, 1);
      ::setenv("LEAVING_PROCESS", std::to_string(process).c_str(), 1);
      ::dup2(::open("/dev/null", O_WRONLY), 1);
      // Under nohup it would be ignored.
      ::signal(SIGHUP, SIG_DFL);
      ::execl("/proc/self/exe", "pipewright_tests",
              "leaving: a process of the job", nullptr);
      ::_exit(127);
    }
  }
  ~Job() {
    for (const pid_t pid : pids_) {
      if (pid <= 0) continue;
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
  }

  // Until all wait for the late one, or are about to.
  void AwaitWaiting() const {
    for (int process = 0; process < kProcesses; ++process) {
      int naps = 0;
      while (notes_.Read("there", process).empty()) {
        REQUIRE(++naps < kMostNaps);
        Nap();
      }
    }
    // What is left to do is to send a message.
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  void Kill(int process, int signal) const { ::kill(pids_[process], signal); }
  void LetGo() const { notes_.Write("go", kLate, "go"); }
  // Its exit code; -1 if it was killed.
  int Await(int process) {
    int status = 0;
    int naps = 0;
    while (::waitpid(pids_[process], &status, WNOHANG) == 0) {
      REQUIRE(++naps < kMostNaps);
      Nap();
    }
    pids_[process] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string Said(int process) const { return notes_.Read("said", process); }

 private:
  const TemporaryFolder folder_;
  const Notes notes_;
  std::vector<pid_t> pids_;
};

TEST_CASE("leaving: who is told to end while others wait is named",
          "[execute][sockets]") {
  for (const char* phase : {kAgree, kReady}) {
    for (const int victim : {0, 2}) {
      INFO("victim " << victim << ", phase " << phase);
      Job job(phase);
      job.AwaitWaiting();
      job.Kill(victim, SIGTERM);
      // It does not wait for the late one.
      CHECK(job.Await(victim) == 1);
      CHECK(absl::StrContains(job.Said(victim), "SIGTERM"));
      for (int process = 0; process < kProcesses; ++process) {
        if (process == victim) continue;
        // It still prepares something.
        if (process == kLate) job.LetGo();
        CHECK(job.Await(process) == 1);
        const std::string said = job.Said(process);
        INFO(process << " said " << said);
        const bool named =
            absl::StrContains(said, absl::StrCat("rank ", victim, ": ")) ||
            absl::StrContains(said, absl::StrCat("process ", victim, ": "));
        CHECK(named);
        const bool why = absl::StrContains(said, "SIGTERM") ||
                         absl::StrContains(said, "has left");
        CHECK(why);
        CHECK(!absl::StrContains(said, "no word"));
        CHECK(!absl::StrContains(said, "no report"));
      }
    }
  }
}

TEST_CASE("leaving: one that is gone without a word has not left",
          "[execute][sockets]") {
  for (const char* phase : {kAgree, kReady}) {
    for (const int signal : {SIGKILL, SIGHUP}) {
      Job job(phase);
      job.AwaitWaiting();
      job.Kill(2, signal);
      CHECK(job.Await(2) == -1);
      for (const int process : {0, 1, kLate}) {
        if (process == kLate) job.LetGo();
        CHECK(job.Await(process) == 1);
        const std::string said = job.Said(process);
        INFO(process << " said " << said);
        CHECK(absl::StrContains(said, "process 2 of the job is gone"));
      }
    }
  }
}

TEST_CASE("leaving: who leaves in good order is not waited for",
          "[execute][sockets]") {
  Job job(kDeserts);
  for (const int process : {0, 1, kDeserter, kLate}) {
    INFO(process << " said " << job.Said(process));
    CHECK(job.Await(process) == (process == kDeserter ? 0 : 1));
    if (process == kDeserter) continue;
    CHECK(absl::StrContains(job.Said(process), "rank 2: did not start"));
  }
}

TEST_CASE("leaving: processes that nobody ends run to the end",
          "[execute][sockets]") {
  for (const char* phase : {kAgree, kReady}) {
    Job job(phase);
    job.AwaitWaiting();
    job.LetGo();
    for (int process = 0; process < kProcesses; ++process) {
      CHECK(job.Await(process) == 0);
      CHECK(job.Said(process) == "ok");
    }
  }
}

}  // namespace
}  // namespace pipewright::leaving_test
