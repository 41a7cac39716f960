// Processes that a file brings together, without mpirun.
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "tests/support/run_binary.h"

namespace pipewright {
namespace {

// `pipewright execute ARGUMENTS --bootstrap file:... --rank R --ranks P`, for
// every R a process.
class Job {
 public:
  Job(int ranks, const std::vector<std::string>& arguments, int started = -1)
      : ranks_(started < 0 ? ranks : started) {
    for (int rank = 0; rank < ranks_; ++rank) {
      std::vector<std::string> words = {PIPEWRIGHT_BINARY, "execute"};
      words.insert(words.end(), arguments.begin(), arguments.end());
      for (const std::string& word :
           {std::string("--bootstrap"), absl::StrCat("file:", path()),
            std::string("--rank"), absl::StrCat(rank), std::string("--ranks"),
            absl::StrCat(ranks)}) {
        words.push_back(word);
      }
      pids_.push_back(Start(words, folder_.Write(absl::StrCat("out", rank), ""),
                            folder_.Write(absl::StrCat("err", rank), "")));
    }
  }
  ~Job() { Await(); }

  std::string path() const { return folder_.Path("job"); }
  void Kill(int rank, int signal) const { ::kill(pids_[rank], signal); }
  // Exit codes; -1 of who was killed.
  std::vector<int> Await() {
    while (codes_.size() < pids_.size()) {
      int status = 0;
      ::waitpid(pids_[codes_.size()], &status, 0);
      codes_.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    }
    return codes_;
  }
  std::string Out(int rank) const { return Read("out", rank); }
  std::string Err(int rank) const { return Read("err", rank); }
  std::vector<std::string> Files() const { return folder_.Files(); }
  const testing::TemporaryFolder& folder() const { return folder_; }

 private:
  std::string Read(const char* name, int rank) const {
    return ReadFile(folder_.Path(absl::StrCat(name, rank))).value_or("");
  }
  static pid_t Start(std::vector<std::string> words, const std::string& out,
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
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }

  testing::TemporaryFolder folder_;
  int ranks_;
  std::vector<pid_t> pids_;
  std::vector<int> codes_;
};

void Nap() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

std::vector<std::string> Small(const std::vector<std::string>& more) {
  std::vector<std::string> words = {"--schedule", "1f1b",           "--model",
                                    "gpt-tiny",   "--microbatches", "4"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

TEST_CASE("sockets: processes train what the sequential run trains",
          "[execute][sockets]") {
  Job job(2, Small({"--pp", "2", "--steps", "1", "--json"}));
  CHECK(job.Await() == std::vector<int>{0, 0});
  INFO(job.Err(0) << job.Err(1));
  const auto report = nlohmann::json::parse(job.Out(0), nullptr, false);
  REQUIRE(report.is_object());
  CHECK(report["execute"]["transport"] == "sockets");
  CHECK(report["execute"]["check"]["same_bits"] == true);
  // One speaks for all, and nothing is left behind.
  CHECK(job.Out(1).empty());
  CHECK(job.Files() ==
        std::vector<std::string>{"err0", "err1", "out0", "out1"});
}

TEST_CASE("sockets: a killed process ends the others with what they wait for",
          "[execute][sockets]") {
  Job job(4, Small({"--pp", "4", "--steps", "1000", "--no-check"}));
  // Not before all are in it: what they find each other by has come and is gone
  // for good. It goes from process to process, with little in between.
  const auto waits = [&] {
    const std::vector<std::string> files = job.Files();
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
      "job", absl::StrCat("pipewright-job 1\n", std::string(32, 'a'),
                          "\n127.0.0.1\n9\n"));
  const auto arguments = [&](int rank) {
    return absl::StrCat(PIPEWRIGHT_BINARY,
                        " execute --schedule 1f1b --pp 2 --microbatches 2 "
                        "--model gpt-tiny --steps 1 --no-check --bootstrap "
                        "file:",
                        path, " --rank ", rank, " --ranks 2 > ",
                        folder.Path(absl::StrCat("out", rank)), " 2>&1");
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
  Job job(4, Small({"--pp", "4", "--timeout", "5"}), /*started=*/3);
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
           {{"--transport", "sockets"}, "--bootstrap file:PATH --rank R"},
           {{"--transport", "nccl"}, "nccl with --device cuda"},
           {{"--transport", "nccl", "--device", "cuda"}, "mpirun -n P"},
           {{"--transport", "pigeons"}, "pigeons"},
           {{"--transport", "threads", "--bootstrap", "file:/tmp/job", "--rank",
             "0", "--ranks", "1"},
            "sockets or nccl"}}) {
    std::vector<std::string> words = {"execute"};
    for (const std::string& word : Small({"--pp", "2"})) words.push_back(word);
    words.insert(words.end(), each.options.begin(), each.options.end());
    const testing::BinaryResult result = testing::RunBinary(words);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(absl::StrContains(result.err, each.text));
  }
}

TEST_CASE("sockets: the wrong number of processes is a wrong use",
          "[execute][sockets]") {
  Job job(3, Small({"--pp", "2"}));
  CHECK(job.Await() == std::vector<int>{2, 2, 2});
  CHECK(absl::StrContains(job.Err(0), "--ranks: 3 is not allowed; allowed: 2"));
}

}  // namespace
}  // namespace pipewright
