// Input from outside: which files are allowed, and how many bytes of them.
// Every reader in the product comes through here, so that no input has no end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Each with a limit of its own (MostBytes).
enum class InputKind : uint8_t {
  kConfiguration,  // 16 MiB; systems and Hugging Face files too
  kSchedule,       // 1 GiB
  kProfile,        // 1 GiB; tables and benchmarks too
  kTrace,          // 16 GiB unpacked
};

// How many times its packed size a trace may be: what profilers write packs
// to a tenth or a thirtieth, a file that was made to burst to a thousandth.
inline constexpr int64_t kMostExpansion = 200;

// "configuration", "schedule", ...
absl::string_view InputName(InputKind kind);

// Bytes that are read of one file at most. The environment variable
// PIPEWRIGHT_MAX_INPUT ("64GiB") raises the limit of every kind. Error:
// kInvalidArgument where it holds no amount.
absl::StatusOr<int64_t> MostBytes(InputKind kind);
// What PIPEWRIGHT_MAX_INPUT says, 0 without it; the same error.
absl::StatusOr<int64_t> RaisedLimit();

// kInvalidArgument that names file and limit.
absl::Status TooLarge(const std::string& path, InputKind kind, int64_t most);

// Hears how much of a file of known size has been read, 0 to 1, by whatever
// thread reads it. Set once, before anything is read; null by default.
using InputWatch = void (*)(const std::string& path, double part);
void WatchInput(InputWatch watch);

// A file that is open for reading, closed with the object.
class OpenInput {
 public:
  // Error: kNotFound when it is not there; kInvalidArgument when it cannot be
  // read, for a folder, a device or a socket, and for a file that is larger
  // than `most`. A terminal is a device, except as standard input.
  static absl::StatusOr<OpenInput> Open(const std::string& path, InputKind kind,
                                        int64_t most);
  ~OpenInput();
  OpenInput(OpenInput&& other) noexcept;
  OpenInput& operator=(OpenInput&&) = delete;

  // How much was read into `buffer`, 0 at the end. Error: kInvalidArgument.
  absl::StatusOr<int64_t> Read(char* buffer, int64_t size);
  // Bytes of a regular file; -1 for a pipe, which does not tell.
  int64_t size() const { return size_; }

 private:
  OpenInput(int file, std::string path, int64_t size)
      : file_(file), path_(std::move(path)), size_(size) {}

  int file_;
  std::string path_;
  int64_t size_;
  int64_t read_ = 0;
};

// The whole file. Errors: those of Open, and of a file that goes on beyond the
// limit.
absl::StatusOr<std::string> ReadFile(
    const std::string& path, InputKind kind = InputKind::kConfiguration);

// Bytes of the byte order mark that some editors put in front of a text in
// UTF-8; 0 without one. ReadFile and InputFile leave it out, so that no reader
// meets it.
inline size_t ByteOrderMarkSize(absl::string_view file) {
  constexpr absl::string_view kMark = "\xef\xbb\xbf";
  return absl::StartsWith(file, kMark) ? kMark.size() : 0;
}

}  // namespace pipewright
