#include "tests/support/run_binary.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "sim/base/check.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"

namespace pipewright::testing {

BinaryResult RunBinary(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {BinaryPath()};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return RunProgram(words);
}

BinaryResult RunProgram(const std::vector<std::string>& words) {
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
  int status = 0;
  PW_CHECK(::waitpid(child, &status, 0) == child);
  BinaryResult result;
  if (WIFEXITED(status)) result.exit_code = WEXITSTATUS(status);
  result.out = ReadFile(out).value();
  result.err = ReadFile(err).value();
  return result;
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
