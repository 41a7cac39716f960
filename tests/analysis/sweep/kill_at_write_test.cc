// A sweep that is killed at each of its writes: the file is that of a sweep or
// is not there, and the next call gives the table of an undisturbed one.
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::kill_at_write_test {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;

std::vector<std::string> SmallSweep(const std::string& path,
                                    const std::vector<std::string>& more) {
  std::vector<std::string> words = {"sweep",
                                    "--schedule",
                                    "1f1b",
                                    "--microbatches",
                                    "4",
                                    "--forward",
                                    "1ms",
                                    "--backward-input",
                                    "1ms",
                                    "--backward-weight",
                                    "1ms",
                                    "--p2p",
                                    "0ms",
                                    "-o",
                                    path,
                                    "--sweep",
                                    "strategy.pp=2,3",
                                    "-j",
                                    "1"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::vector<std::string> SortedRows(const std::string& path) {
  const TemporaryFolder folder;
  const std::string lines = folder.Path("rows.jsonl");
  const BinaryResult run = RunBinary(
      {"sweep", "-o", path, "--jsonl", lines, "--columns", "hash,iteration_s"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  std::ifstream in(lines);
  std::vector<std::string> rows;
  for (std::string row; std::getline(in, row);) rows.push_back(row);
  std::sort(rows.begin(), rows.end());
  return rows;
}

bool Writes(uint64_t call) {
  switch (call) {
    case SYS_pwrite64:
    case SYS_fdatasync:
    case SYS_fsync:
    case SYS_ftruncate:
#ifdef SYS_unlink
    case SYS_unlink:
    case SYS_rename:
#endif
    case SYS_unlinkat:
    case SYS_renameat2:
      return true;
    default:
      return false;
  }
}

enum class Traced { kKilled, kEnded, kForbidden };

// Runs the program and kills it when it is about to write for the `which`-th
// time, from 1, and that write has not happened.
Traced KillAtWrite(std::vector<std::string> words, int which) {
  words.insert(words.begin(), testing::BinaryPath());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    std::freopen("/dev/null", "w", stdout);
    std::freopen("/dev/null", "w", stderr);
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(126);
    ::execv(argv[0], argv.data());
    ::_exit(127);
  }
  int state = 0;
  int seen = 0;
  bool traces = false;
  while (::waitpid(child, &state, 0) == child && WIFSTOPPED(state)) {
    if (!traces) {
      ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD);
      traces = true;
    }
    int signal = WSTOPSIG(state);
    if (signal == (SIGTRAP | 0x80)) {
      __ptrace_syscall_info info{};
      if (::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof(info), &info) > 0 &&
          info.op == PTRACE_SYSCALL_INFO_ENTRY && Writes(info.entry.nr) &&
          ++seen == which) {
        ::kill(child, SIGKILL);
      }
    }
    if (signal == SIGTRAP || signal == (SIGTRAP | 0x80)) signal = 0;
    ::ptrace(PTRACE_SYSCALL, child, nullptr, signal);
  }
  if (!traces) return Traced::kForbidden;
  if (WIFSIGNALED(state)) return Traced::kKilled;
  CHECK(WEXITSTATUS(state) == 0);
  return Traced::kEnded;
}

TEST_CASE("sweep: killed at each of its writes, it is as if undisturbed",
          "[sweep][long]") {
  const TemporaryFolder folder;
  const std::string whole = folder.Path("whole.sqlite");
  REQUIRE(RunBinary(SmallSweep(whole, {})).exit_code == 0);
  const std::vector<std::string> rows = SortedRows(whole);
  int kills = 0;
  for (int which = 1; which < 200; ++which) {
    const TemporaryFolder place;
    const std::string path = place.Path("runs.sqlite");
    const Traced traced = KillAtWrite(SmallSweep(path, {}), which);
    if (traced == Traced::kForbidden) {
      WARN("this machine does not let a program trace its child: not tried");
      return;
    }
    if (traced == Traced::kEnded) break;
    ++kills;
    INFO("killed at write " << which);
    const BinaryResult count = RunBinary(SmallSweep(path, {"--dry-run"}));
    INFO(count.err);
    CHECK(count.exit_code == 0);
    const BinaryResult rest = RunBinary(SmallSweep(path, {}));
    INFO(rest.err);
    REQUIRE(rest.exit_code == 0);
    // No help file of the killed one stays.
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(
             std::filesystem::path(path).parent_path())) {
      INFO(entry.path().string());
      files += entry.path().extension() == ".sqlite" ? 0 : 1;
    }
    CHECK(files == 0);
    // After that, since readers of a table make such files again.
    CHECK(SortedRows(path) == rows);
  }
  // It writes its tables, its rows and their journal.
  CHECK(kills >= 20);
}

TEST_CASE("sweep: an empty file is filled, and counts as none", "[sweep]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("runs.sqlite");
  std::fclose(std::fopen(path.c_str(), "w"));
  const BinaryResult count = RunBinary(SmallSweep(path, {"--dry-run"}));
  INFO(count.err);
  CHECK(count.exit_code == 0);
  const BinaryResult run = RunBinary(SmallSweep(path, {}));
  INFO(run.err);
  CHECK(run.exit_code == 0);
}

}  // namespace
}  // namespace pipewright::kill_at_write_test
