#include "tests/support/mpirun.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdlib>
#include <thread>

#include "absl/strings/str_cat.h"
#include "sim/base/check.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"

namespace pipewright::testing {
namespace {

#ifndef PIPEWRIGHT_MPI_RUNNER
#define PIPEWRIGHT_MPI_RUNNER ""
#endif

// A job that hangs is ended by mpirun then.
constexpr char kLimit_s[] = "120";

}  // namespace

bool HaveMpirun() {
  const std::string runner = PIPEWRIGHT_MPI_RUNNER;
  if (runner.empty()) {
    WARN("built without MPI: skipped");
    return false;
  }
  const bool found =
      std::system("command -v mpirun > /dev/null 2>&1") == 0;  // NOLINT
  if (!found) WARN("no mpirun (Debian: openmpi-bin): skipped");
  return found;
}

BinaryResult RunBinaryUnderMpirun(int processes,
                                  const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"mpirun",
                                    "--allow-run-as-root",
                                    "--oversubscribe",
                                    "--timeout",
                                    kLimit_s,
                                    "-n",
                                    absl::StrCat(processes),
                                    BinaryPath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProgram(words);
}

MpiRunner::MpiRunner(int processes, const std::vector<std::string>& arguments,
                     int kill_after_s, int nodes) {
  std::vector<std::string> words = {"mpirun",
                                    "--allow-run-as-root",
                                    "--oversubscribe",
                                    "--timeout",
                                    kLimit_s,
                                    "--mca",
                                    "odls_base_sigkill_timeout",
                                    absl::StrCat(kill_after_s)};
  const auto add = [&words](const std::vector<std::string>& more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (nodes > 1) {
    // Instead of ssh: the same machine whatever it is called.
    const std::string agent =
        folder_.Write("agent", "#!/bin/sh\nshift\nexec sh -c \"$*\"\n");
    PW_CHECK(::chmod(agent.c_str(), 0700) == 0);
    const int slots = (processes + nodes - 1) / nodes;
    add({"--host", absl::StrCat("localhost:", slots, ",node-b:", slots),
         "--mca", "plm_rsh_agent", agent});
    for (const char* const layer :
         {"oob_tcp_if_include", "btl_tcp_if_include"}) {
      add({"--mca", layer, "lo"});
    }
    add({"--mca", "btl", "tcp,self", "--mca", "pml", "ob1"});
  }
  add({"-n", absl::StrCat(processes), PIPEWRIGHT_MPI_RUNNER, "--folder",
       folder_.Path("")});
  words.insert(words.end(), arguments.begin(), arguments.end());
  const std::string output = folder_.Write("output", "");
  mpirun_ = ::fork();
  PW_CHECK(mpirun_ >= 0);
  if (mpirun_ > 0) return;
  const int file = ::open(output.c_str(), O_WRONLY | O_APPEND);
  ::dup2(file, 1);
  ::dup2(file, 2);
  ::dup2(::open("/dev/null", O_RDONLY), 0);
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  ::execvp(argv[0], argv.data());
  ::_exit(127);
}

MpiRunner::~MpiRunner() { Await(); }

pid_t MpiRunner::Pid(int process) const {
  while (Read("pid", process).empty()) {
    PW_CHECK(::waitpid(mpirun_, nullptr, WNOHANG) == 0);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return static_cast<pid_t>(std::stol(Read("pid", process)));
}

void MpiRunner::Await() {
  if (mpirun_ < 0) return;
  // mpirun's own status is not ours.
  ::waitpid(mpirun_, nullptr, 0);
  mpirun_ = -1;
}

std::string MpiRunner::Read(const std::string& name, int process) const {
  return ReadFile(folder_.Path(absl::StrCat(name, ".", process))).value_or("");
}

std::string MpiRunner::output() const {
  return ReadFile(folder_.Path("output")).value_or("");
}

}  // namespace pipewright::testing
