// The line that says how far a long run is: on a terminal, and nowhere else.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "sim/cli/progress_bar.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::progress_test {
namespace {

TEST_CASE("progress: the line", "[cli]") {
  CHECK(ProgressBar::Line(0, 2) == "[" + std::string(30, '.') + "] 0 %");
  CHECK(ProgressBar::Line(0.5, 3) == "[" + std::string(15, '#') +
                                         std::string(15, '.') +
                                         "] 50 %, about 3 s left");
  // A third takes 4 s, so what is left takes 8.
  CHECK_THAT(ProgressBar::Line(1.0 / 3, 4),
             Catch::EndsWith("] 33 %, about 8 s left"));
  CHECK(ProgressBar::Line(2, 3) ==
        "[" + std::string(30, '#') + "] 100 %, about 0 s left");
  CHECK_THAT(ProgressBar::Line(0.5, 3, "1 of 2 points"),
             Catch::EndsWith("] 50 %, about 3 s left: 1 of 2 points"));
}

// In a process whose standard error is a terminal: what that has been told.
std::string ShownBy(void (*process)()) {
  const int terminal = ::posix_openpt(O_RDWR | O_NOCTTY);
  REQUIRE(terminal >= 0);
  REQUIRE(::grantpt(terminal) == 0);
  REQUIRE(::unlockpt(terminal) == 0);
  const int other = ::open(::ptsname(terminal), O_RDWR | O_NOCTTY);
  REQUIRE(other >= 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    ::dup2(other, STDERR_FILENO);
    ::setenv("TERM", "xterm", 1);
    process();
    ::_exit(0);
  }
  REQUIRE(::waitpid(child, nullptr, 0) == child);
  std::string shown;
  char buffer[4096];
  REQUIRE(::fcntl(terminal, F_SETFL, O_NONBLOCK) == 0);
  for (ssize_t count; (count = ::read(terminal, buffer, sizeof(buffer))) > 0;) {
    shown.append(buffer, static_cast<size_t>(count));
  }
  ::close(other);
  ::close(terminal);
  return shown;
}

TEST_CASE("progress: what a child has drawn is wiped out by its parent",
          "[cli]") {
  const std::string shown = ShownBy([] {
    ProgressBar bar;
    std::this_thread::sleep_for(std::chrono::milliseconds(1100));
    const pid_t child = ::fork();
    if (child == 0) {
      bar.At(0.5);
      ::_exit(1);
    }
    ::waitpid(child, nullptr, 0);
  });
  INFO(shown);
  CHECK_THAT(shown, Catch::Contains("] 50 %"));
  CHECK_THAT(shown, Catch::EndsWith("\r\x1b[K"));
}

// Some seconds of W1, with util-linux's script as the terminal.
const char* const kLongRun[] = {"--jitter", "uniform:5%", "--hop-bytes",
                                "100MB"};

TEST_CASE("progress: on a terminal alone, and wiped out at the end",
          "[cli][long]") {
  const std::string config = testing::SourcePath("experiments/scale/w1.yaml");
  std::string command = testing::BinaryPath() + " simulate " + config;
  std::vector<std::string> words = {"simulate", config};
  for (const char* word : kLongRun) {
    command += std::string(" ") + word;
    words.push_back(word);
  }
  const std::string in_terminal =
      "TERM=xterm script -qec '" + command + "' /dev/null 2>&1 < /dev/null";
  FILE* const pipe = ::popen(in_terminal.c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::string shown;
  char buffer[4096];
  for (size_t count;
       (count = std::fread(buffer, 1, sizeof(buffer), pipe)) > 0;) {
    shown.append(buffer, count);
  }
  REQUIRE(::pclose(pipe) == 0);
  INFO(shown.substr(0, 2000));
  const std::string begin = "\r\x1b[K";
  CHECK_THAT(shown, Catch::Contains(begin + "[#"));
  CHECK_THAT(shown, Catch::Contains(" %, about "));
  // Behind the last wipe stands the report and no bar.
  const size_t wiped = shown.rfind(begin);
  REQUIRE(wiped != std::string::npos);
  CHECK(shown.find("[#", wiped) == std::string::npos);
  CHECK_THAT(shown.substr(wiped), Catch::Contains("iteration"));
  const testing::BinaryResult alone = testing::RunBinary(words);
  CHECK(alone.exit_code == 0);
  CHECK(alone.err.find('\x1b') == std::string::npos);
  CHECK(alone.out.find('\x1b') == std::string::npos);
}

}  // namespace
}  // namespace pipewright::progress_test
