#include "sim/base/file.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>

namespace pipewright::file_test {
namespace {

// A folder of its own, gone with the object.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string path = std::filesystem::temp_directory_path() / "pw.XXXXXX";
    REQUIRE(::mkdtemp(path.data()) != nullptr);
    path_ = path;
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path_); }
  std::string operator/(const char* name) const { return path_ / name; }
  size_t entries() const {
    return std::distance(std::filesystem::directory_iterator(path_), {});
  }

 private:
  std::filesystem::path path_;
};

TEST_CASE("file: what is written reads back, nothing else is left", "[base]") {
  const TemporaryFolder folder;
  REQUIRE(WriteFile(folder / "a", "one").ok());
  REQUIRE(WriteFile(folder / "a", "two").ok());
  CHECK(*ReadFile(folder / "a") == "two");
  CHECK(folder.entries() == 1);
}

TEST_CASE("file: a link stays and its target is replaced", "[base]") {
  const TemporaryFolder folder;
  REQUIRE(WriteFile(folder / "target", "old").ok());
  REQUIRE(::symlink("target", (folder / "link").c_str()) == 0);
  REQUIRE(WriteFile(folder / "link", "new").ok());
  CHECK(std::filesystem::is_symlink(folder / "link"));
  CHECK(*ReadFile(folder / "target") == "new");
}

TEST_CASE("file: a link to nothing is refused and stays", "[base]") {
  const TemporaryFolder folder;
  REQUIRE(::symlink("nothing", (folder / "link").c_str()) == 0);
  CHECK(WriteFile(folder / "link", "new").code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(std::filesystem::is_symlink(folder / "link"));
}

TEST_CASE("file: permissions survive a new content", "[base]") {
  const TemporaryFolder folder;
  REQUIRE(WriteFile(folder / "a", "old").ok());
  REQUIRE(::chmod((folder / "a").c_str(), 0640) == 0);
  REQUIRE(WriteFile(folder / "a", "new").ok());
  struct stat info;
  REQUIRE(::stat((folder / "a").c_str(), &info) == 0);
  CHECK((info.st_mode & 07777) == 0640);
}

TEST_CASE("file: a file without write permission is refused", "[base]") {
  if (::geteuid() == 0) {
    WARN("runs as root, for whom no file is read-only");
    return;
  }
  const TemporaryFolder folder;
  REQUIRE(WriteFile(folder / "a", "old").ok());
  REQUIRE(::chmod((folder / "a").c_str(), 0444) == 0);
  CHECK(WriteFile(folder / "a", "new").code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(*ReadFile(folder / "a") == "old");
}

TEST_CASE("file: a device is written and stays one", "[base]") {
  // Through a link, so that a mistake costs the link and not the device.
  const TemporaryFolder folder;
  REQUIRE(::symlink("/dev/full", (folder / "full").c_str()) == 0);
  REQUIRE(::symlink("/dev/null", (folder / "null").c_str()) == 0);
  CHECK(WriteFile(folder / "null", "text").ok());
  const absl::Status full = WriteFile(folder / "full", "text");
  CHECK(full.code() == absl::StatusCode::kInternal);
  CHECK(std::string(full.message()).find("No space left") != std::string::npos);
  CHECK(std::filesystem::is_symlink(folder / "full"));
  CHECK(std::filesystem::is_symlink(folder / "null"));
}

TEST_CASE("file: a folder or a path through nothing is refused", "[base]") {
  const TemporaryFolder folder;
  CHECK(WriteFile(folder / ".", "text").code() ==
        absl::StatusCode::kInvalidArgument);
  CHECK(WriteFile(folder / "no/file", "text").code() ==
        absl::StatusCode::kNotFound);
}

TEST_CASE("file: of several files all are written or none", "[base]") {
  const TemporaryFolder folder;
  REQUIRE(WriteFile(folder / "a", "old").ok());
  {
    StagedFiles staged;
    REQUIRE(staged.Add(folder / "a", "new").ok());
    REQUIRE(staged.Add(folder / "b", "new").ok());
    CHECK(staged.Add("/dev/full", "new").code() == absl::StatusCode::kInternal);
    CHECK(*ReadFile(folder / "a") == "old");
  }
  CHECK(*ReadFile(folder / "a") == "old");
  CHECK(folder.entries() == 1);
  StagedFiles staged;
  REQUIRE(staged.Add(folder / "a", "new").ok());
  REQUIRE(staged.Add(folder / "b", "new").ok());
  REQUIRE(staged.Commit().ok());
  CHECK(*ReadFile(folder / "a") == "new");
  CHECK(*ReadFile(folder / "b") == "new");
  CHECK(folder.entries() == 2);
}

// The name that the file of a write has before it is renamed.
std::string TemporaryOf(const std::string& folder) {
  std::string found;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename();
    if (name.rfind(".pipewright-", 0) == 0) found = entry.path();
  }
  return found;
}

TEST_CASE("file: what a killed write has left is removed by the next",
          "[base]") {
  const TemporaryFolder folder;
  const std::string root = folder / ".";
  REQUIRE(WriteFile(folder / "a", "old").ok());
  const pid_t child = ::fork();
  if (child == 0) {
    auto* const staged = new StagedFiles();
    if (!staged->Add(folder / "a", "half").ok()) ::_exit(1);
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
  const std::string stale = TemporaryOf(root);
  REQUIRE(!stale.empty());
  CHECK(folder.entries() == 2);
  // A file of another target stays, as does what only looks like one.
  REQUIRE(WriteFile(folder / "b", "new").ok());
  CHECK(std::filesystem::exists(stale));
  const std::string alike = stale.substr(0, stale.size() - 6) + "abcdefg";
  REQUIRE(WriteFile(alike, "mine").ok());
  REQUIRE(WriteFile(folder / "a", "new").ok());
  CHECK(!std::filesystem::exists(stale));
  CHECK(std::filesystem::exists(alike));
  CHECK(*ReadFile(folder / "a") == "new");
}

TEST_CASE("file: what another process writes is no stale file", "[base]") {
  const TemporaryFolder folder;
  int go[2];
  int ready[2];
  REQUIRE(::pipe(go) == 0);
  REQUIRE(::pipe(ready) == 0);
  const pid_t child = ::fork();
  if (child == 0) {
    char byte = 0;
    StagedFiles staged;
    const bool added = staged.Add(folder / "a", "slow").ok();
    ::write(ready[1], &byte, 1);
    ::read(go[0], &byte, 1);
    ::_exit(added && staged.Commit().ok() ? 0 : 1);
  }
  char byte = 0;
  REQUIRE(::read(ready[0], &byte, 1) == 1);
  REQUIRE(WriteFile(folder / "a", "fast").ok());
  CHECK(folder.entries() == 2);
  REQUIRE(::write(go[1], &byte, 1) == 1);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(*ReadFile(folder / "a") == "slow");
  CHECK(folder.entries() == 1);
}

// Neither the buffer of a socket nor a signal ends what is written and read.
TEST_CASE("file: bytes go through a socket as a whole", "[base]") {
  struct sigaction interrupt {};
  struct sigaction before {};
  interrupt.sa_handler = [](int) {};  // without SA_RESTART
  REQUIRE(::sigaction(SIGUSR1, &interrupt, &before) == 0);
  for (const bool sends : {false, true}) {
    int ends[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    std::string text;
    while (text.size() < size_t{8} << 20) text += std::to_string(text.size());
    std::atomic<bool> done = false;
    bool written = false;
    std::thread writer([&] {
      written = sends ? SendAll(ends[1], text) : WriteAll(ends[1], text);
      ::close(ends[1]);
      done = true;
    });
    std::thread interrupts([&, target = writer.native_handle()] {
      while (!done) {
        ::pthread_kill(target, SIGUSR1);
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::string read(text.size(), ' ');
    CHECK(ReadAll(ends[0], read.data(), read.size()));
    CHECK(read == text);
    interrupts.join();
    writer.join();
    CHECK(written);
    char more = 0;
    CHECK_FALSE(ReadAll(ends[0], &more, 1));
    ::close(ends[0]);
  }
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_CASE("file: nobody reads from a socket: an error and no signal",
          "[base]") {
  int ends[2];
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  ::close(ends[0]);
  CHECK_FALSE(SendAll(ends[1], "text"));
  CHECK(errno == EPIPE);
  ::close(ends[1]);
  CHECK_FALSE(WriteAll(-1, "text"));
  CHECK(errno == EBADF);
  CHECK(WriteAll(-1, ""));
}

}  // namespace
}  // namespace pipewright::file_test
