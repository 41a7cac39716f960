// What may be read, and how much of it.
#include "sim/base/input.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "sim/base/error_parts.h"
#include "sim/base/gzip.h"
#include "tests/support/gzip_text.h"
#include "tests/support/run_binary.h"

namespace pipewright::input_test {
namespace {

using testing::Gzip;
using testing::TemporaryFolder;

constexpr int64_t kMiB = int64_t{1} << 20;

// PIPEWRIGHT_MAX_INPUT as long as the object lives.
class MaxInput {
 public:
  explicit MaxInput(const char* text) {
    ::setenv("PIPEWRIGHT_MAX_INPUT", text, 1);
  }
  ~MaxInput() { ::unsetenv("PIPEWRIGHT_MAX_INPUT"); }
};

// A file of so many zeros that takes no room.
std::string Sparse(const TemporaryFolder& folder, int64_t bytes) {
  std::string path = folder.Write("sparse", "");
  REQUIRE(::truncate(path.c_str(), bytes) == 0);
  return path;
}

std::string ReadTrace(const std::string& path, absl::Status* status) {
  const auto file = InputFile::Open(path);
  *status = file.status();
  if (!file.ok()) return "";
  std::istream& in = (*file)->stream();
  std::string text(std::istreambuf_iterator<char>(in), {});
  *status = (*file)->status();
  return text;
}

void CheckRefused(const absl::Status& status, const std::string& path,
                  absl::string_view part) {
  INFO(status.message());
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK(absl::StrContains(status.message(), path));
  CHECK(absl::StrContains(status.message(), part));
  CHECK(PartsOf(status).file == path);
}

TEST_CASE("input: folders, devices and sockets are refused by name", "[base]") {
  const TemporaryFolder folder;
  const std::string socket = folder.Path("socket");
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  REQUIRE(socket.size() < sizeof(address.sun_path));
  std::strcpy(address.sun_path, socket.c_str());
  const int listener = ::socket(AF_UNIX, SOCK_STREAM, 0);
  REQUIRE(::bind(listener, reinterpret_cast<sockaddr*>(&address),
                 sizeof(address)) == 0);
  const struct {
    std::string path;
    const char* what;
  } refused[] = {{folder.Path(""), "a folder"},
                 {"/dev/zero", "a character device"},
                 {"/dev/urandom", "a character device"},
                 {"/dev/null", "a character device"},
                 {socket, "a socket"}};
  for (const auto& each : refused) {
    absl::Status traced;
    ReadTrace(each.path, &traced);
    CheckRefused(traced, each.path, each.what);
    CheckRefused(ReadFile(each.path).status(), each.path, each.what);
  }
  ::close(listener);
  // Through a link too.
  REQUIRE(::symlink("/dev/zero", folder.Path("link").c_str()) == 0);
  CheckRefused(ReadFile(folder.Path("link")).status(), folder.Path("link"),
               "a character device");
  CHECK(ReadFile(folder.Path("none")).status().code() ==
        absl::StatusCode::kNotFound);
}

TEST_CASE("input: each kind has a limit, which the environment raises",
          "[base]") {
  const TemporaryFolder folder;
  const std::string path = Sparse(folder, 16 * kMiB);
  CHECK(ReadFile(path).value().size() == 16 * kMiB);
  REQUIRE(::truncate(path.c_str(), 16 * kMiB + 1) == 0);
  CheckRefused(ReadFile(path).status(), path, "16 MiB");
  CHECK(ReadFile(path, InputKind::kSchedule).ok());
  REQUIRE(::truncate(path.c_str(), 1024 * kMiB + 1) == 0);
  for (const InputKind kind : {InputKind::kSchedule, InputKind::kProfile}) {
    CheckRefused(ReadFile(path, kind).status(), path, "1 GiB");
  }
  REQUIRE(::truncate(path.c_str(), 16 * 1024 * kMiB + 1) == 0);
  absl::Status traced;
  ReadTrace(path, &traced);
  CheckRefused(traced, path, "16 GiB");

  REQUIRE(::truncate(path.c_str(), 17 * kMiB) == 0);
  {
    const MaxInput raised("17MiB");
    CHECK(ReadFile(path).ok());
    // It raises, and never lowers.
    CHECK(MostBytes(InputKind::kTrace).value() == 16 * 1024 * kMiB);
  }
  {
    const MaxInput raised("1MiB");
    CHECK(MostBytes(InputKind::kConfiguration).value() == 16 * kMiB);
  }
  for (const char* const wrong : {"much", "17", "-1MiB", "2PiB"}) {
    const MaxInput raised(wrong);
    const absl::Status status = ReadFile(path).status();
    INFO(status.message());
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    CHECK(PartsOf(status).field == "PIPEWRIGHT_MAX_INPUT");
    CHECK(PartsOf(status).value == wrong);
  }
}

TEST_CASE("input: a pipe is read to its end or to the limit", "[base]") {
  const TemporaryFolder folder;
  const std::string path = folder.Path("pipe");
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  const auto write = [&](int64_t bytes, const std::string& text) {
    return std::thread([path, bytes, text] {
      FILE* const file = std::fopen(path.c_str(), "w");
      for (int64_t sent = 0; sent < bytes; sent += text.size()) {
        if (std::fwrite(text.data(), 1, text.size(), file) < text.size()) break;
      }
      std::fclose(file);
    });
  };
  ::signal(SIGPIPE, SIG_IGN);
  std::thread small = write(3, "abc");
  CHECK(ReadFile(path).value() == "abc");
  small.join();
  std::thread endless = write(64 * kMiB, std::string(1000, 'x'));
  CheckRefused(ReadFile(path).status(), path, "16 MiB");
  endless.join();
  std::thread trace = write(3, "abc");
  absl::Status status;
  CHECK(ReadTrace(path, &status) == "abc");
  CHECK(status.ok());
  trace.join();
}

TEST_CASE("input: a gzip file may expand to 200 times its size", "[base]") {
  const TemporaryFolder folder;
  const std::string zeros(40 * kMiB, '0');
  // Zeros pack to less than a thousandth.
  const std::string path = folder.Write("bomb.gz", Gzip(zeros));
  const auto packed = static_cast<int64_t>(std::filesystem::file_size(path));
  REQUIRE(packed * kMostExpansion < 40 * kMiB);
  absl::Status status;
  const std::string read = ReadTrace(path, &status);
  CheckRefused(status, path, "200 times");
  CHECK(static_cast<int64_t>(read.size()) <= (packed + 1) * kMostExpansion);
  {
    const MaxInput raised("40MiB");
    CHECK(ReadTrace(path, &status).size() == zeros.size());
    CHECK(status.ok());
  }
  // What packs to a hundredth is read.
  std::string text;
  while (text.size() < 1000000) {
    text += std::to_string(text.size()) + std::string(1000, ' ');
  }
  CHECK(ReadTrace(folder.Write("text.gz", Gzip(text)), &status) == text);
  CHECK(status.ok());
}

}  // namespace
}  // namespace pipewright::input_test
