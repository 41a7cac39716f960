#include "tests/support/run_here.h"

#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "sim/base/check.h"
#include "sim/cli/verbs.h"

namespace pipewright::testing {
namespace {

// One of standard output and error, into memory while the object lives.
class Captured {
 public:
  Captured(std::FILE* stream, int descriptor)
      : stream_(stream), descriptor_(descriptor) {
    std::fflush(stream_);
    saved_ = ::dup(descriptor_);
    memory_ = ::memfd_create("captured", 0);
    PW_CHECK(saved_ >= 0 && memory_ >= 0);
    PW_CHECK(::dup2(memory_, descriptor_) == descriptor_);
  }
  ~Captured() {
    std::fflush(stream_);
    ::dup2(saved_, descriptor_);
    ::close(saved_);
    ::close(memory_);
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;

  std::string Text() const {
    std::fflush(stream_);
    std::string text(::lseek(memory_, 0, SEEK_END), '\0');
    PW_CHECK(::pread(memory_, text.data(), text.size(), 0) ==
             static_cast<ssize_t>(text.size()));
    return text;
  }

 private:
  std::FILE* stream_;
  int descriptor_;
  int saved_ = -1;
  int memory_ = -1;
};

}  // namespace

BinaryResult RunHere(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"pipewright"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const Captured out(stdout, STDOUT_FILENO);
  const Captured err(stderr, STDERR_FILENO);
  BinaryResult result;
  result.exit_code =
      RunCommandLine(static_cast<int>(words.size()), argv.data());
  result.out = out.Text();
  result.err = err.Text();
  return result;
}

std::vector<VerbRow> VerbTable() {
  CLI::App app("", "pipewright");
  Action action;
  AddVersionFlag(&app);
  AddVerbs(&app, &action);
  return TableOfOptions(app);
}

}  // namespace pipewright::testing
