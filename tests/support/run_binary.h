// Runs the built pipewright as a user would.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace pipewright::testing {

struct BinaryResult {
  int exit_code = -1;  // -1: it was killed
  std::string out;
  std::string err;
};

// No shell in between: arguments arrive as they are.
BinaryResult RunBinary(const std::vector<std::string>& arguments);
// Ctrl-C as soon as `is_ready`, which is asked again and again, with the number
// of the process and what it has said on standard error.
BinaryResult InterruptBinary(
    const std::vector<std::string>& arguments,
    const std::function<bool(int, const std::string&)>& is_ready);
// The same of any program, found on the path.
BinaryResult RunProgram(const std::vector<std::string>& words);

// An empty folder of its own, removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::string Path(const std::string& name) const;
  // Writes a file into it; its path.
  std::string Write(const std::string& name, const std::string& content) const;
  // Names of the files in it, sorted.
  std::vector<std::string> Files() const;

 private:
  std::string path_;
};

}  // namespace pipewright::testing
