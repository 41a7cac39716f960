#include "tests/support/run_binary.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "sim/base/check.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"

namespace pipewright::testing {

namespace {

// `meanwhile` gets the process and the file of its standard error.
BinaryResult RunWith(
    const std::vector<std::string>& words,
    const std::function<void(pid_t, const std::string&)>& meanwhile) {
  const TemporaryFolder folder;
  const std::string out = folder.Write("out", "");
  const std::string err = folder.Write("err", "");
  const pid_t child = ::fork();
  PW_CHECK(child >= 0);
  if (child == 0) {
    ::dup2(::open(out.c_str(), O_WRONLY), 1);
    ::dup2(::open(err.c_str(), O_WRONLY), 2);
    std::vector<char*> argv;
    for (const std::string& word : words) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
  meanwhile(child, err);
  int status = 0;
  PW_CHECK(::waitpid(child, &status, 0) == child);
  BinaryResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  result.out = ReadFile(out).value();
  result.err = ReadFile(err).value();
  return result;
}

std::vector<std::string> WordsOf(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {BinaryPath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

bool HasEnded(pid_t child) {
  siginfo_t info = {};
  PW_CHECK(::waitid(P_PID, child, &info, WEXITED | WNOHANG | WNOWAIT) == 0);
  return info.si_pid == child;
}

}  // namespace

BinaryResult RunBinary(const std::vector<std::string>& arguments) {
  return RunProgram(WordsOf(arguments));
}

BinaryResult RunProgram(const std::vector<std::string>& words) {
  return RunWith(words, [](pid_t, const std::string&) {});
}

BinaryResult InterruptBinary(
    const std::vector<std::string>& arguments,
    const std::function<bool(int, const std::string&)>& is_ready) {
  return RunWith(WordsOf(arguments), [&](pid_t child, const std::string& err) {
    while (!HasEnded(child)) {
      if (is_ready(child, ReadFile(err).value())) {
        PW_CHECK(::kill(child, SIGINT) == 0);
        return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  });
}

TemporaryFolder::TemporaryFolder() {
  std::string name =
      (std::filesystem::temp_directory_path() / "pipewright.XXXXXX").string();
  PW_CHECK(::mkdtemp(name.data()) != nullptr);
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::Path(const std::string& name) const {
  return path_ + "/" + name;
}

std::string TemporaryFolder::Write(const std::string& name,
                                   const std::string& content) const {
  std::ofstream(Path(name)) << content;
  return Path(name);
}

std::vector<std::string> TemporaryFolder::Files() const {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(path_)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace pipewright::testing
