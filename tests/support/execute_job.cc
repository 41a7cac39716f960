#include "tests/support/execute_job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"

namespace pipewright::testing {
namespace {

void Nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

pid_t StartProcess(std::vector<std::string> words, const std::string& out,
                   const std::string& err) {
  const pid_t pid = ::fork();
  PW_CHECK(pid >= 0);
  if (pid > 0) return pid;
  ::dup2(::open(out.c_str(), O_WRONLY), 1);
  ::dup2(::open(err.c_str(), O_WRONLY), 2);
  ::dup2(::open("/dev/null", O_RDONLY), 0);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Under nohup it would be ignored.
  ::signal(SIGHUP, SIG_DFL);
  ::execv(argv[0], argv.data());
  ::_exit(127);
}

}  // namespace

std::vector<std::string> WordsOf(const std::string& line) {
  return absl::StrSplit(line, ' ', absl::SkipEmpty());
}

ExecuteJob::ExecuteJob(int ranks, const std::vector<std::string>& arguments,
                       int started,
                       const std::map<int, std::vector<std::string>>& own)
    : arguments_(arguments) {
  for (int rank = 0; rank < (started < 0 ? ranks : started); ++rank) {
    std::vector<std::string> options = {"--rank", absl::StrCat(rank), "--ranks",
                                        absl::StrCat(ranks)};
    if (const auto found = own.find(rank); found != own.end()) {
      options.insert(options.end(), found->second.begin(), found->second.end());
    }
    Start(options);
  }
}

void ExecuteJob::Start(const std::vector<std::string>& options) {
  const size_t process = pids_.size();
  std::vector<std::string> words = {BinaryPath(), "execute"};
  words.insert(words.end(), arguments_.begin(), arguments_.end());
  words.insert(words.end(),
               {"--bootstrap", absl::StrCat("file:", folder_.Path("job"))});
  words.insert(words.end(), options.begin(), options.end());
  pids_.push_back(
      StartProcess(words, folder_.Write(absl::StrCat("out", process), ""),
                   folder_.Write(absl::StrCat("err", process), "")));
}

// What they find each other by has come and is gone for good. It goes from
// process to process, with little in between.
void ExecuteJob::AwaitMeeting() const {
  const auto waits = [&] {
    const std::vector<std::string> files = Files();
    return std::any_of(files.begin(), files.end(), [](const std::string& file) {
      return absl::StartsWith(file, "job");
    });
  };
  for (int tries = 0; tries < 10000 && !waits(); ++tries) Nap();
  int quiet = 0;
  for (int tries = 0; tries < 60000 && quiet < 1000; ++tries) {
    quiet = waits() ? 0 : quiet + 1;
    Nap();
  }
  REQUIRE(quiet == 1000);
}

int ExecuteJob::Await(int process) {
  const auto found = codes_.find(process);
  if (found != codes_.end()) return found->second;
  int status = 0;
  ::waitpid(pids_[process], &status, 0);
  return codes_[process] = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

std::vector<int> ExecuteJob::Await() {
  std::vector<int> codes;
  for (size_t process = 0; process < pids_.size(); ++process) {
    codes.push_back(Await(static_cast<int>(process)));
  }
  return codes;
}

int ExecuteJob::errors() const {
  int count = 0;
  for (size_t process = 0; process < pids_.size(); ++process) {
    count +=
        absl::StrContains(Err(static_cast<int>(process)), "pipewright: error:")
            ? 1
            : 0;
  }
  return count;
}

std::string ExecuteJob::Read(const char* name, int process) const {
  return ReadFile(folder_.Path(absl::StrCat(name, process))).value_or("");
}

std::vector<std::string> SmallRun(const std::vector<std::string>& more) {
  std::vector<std::string> words = WordsOf(
      "--schedule 1f1b --model gpt-tiny --microbatches 4 "
      "--set model.hidden=64 --set model.ffn_hidden=256");
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

}  // namespace pipewright::testing
