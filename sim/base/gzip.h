// A file as a stream, gzip or not: traces come as .json and as .json.gz. What a
// file is its first bytes say, not its name.
#pragma once

#include <cstdint>
#include <fstream>
#include <istream>
#include <memory>
#include <streambuf>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace pipewright {

// A trace of some steps of a large model has a few GB; a small file that grows
// beyond this is none.
inline constexpr int64_t kMostExpandedBytes = int64_t{8} << 30;

class InputFile {
 public:
  // Expands to `most_bytes` at most. Error: kNotFound for what is not there,
  // empty or a folder.
  static absl::StatusOr<std::unique_ptr<InputFile>> Open(
      const std::string& path, int64_t most_bytes = kMostExpandedBytes);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Ends early where the file is broken or too large: whoever has read it, to
  // whatever result, asks status().
  std::istream& stream() { return *stream_; }
  // kInvalidArgument, with the path, for a file that is no whole gzip file or
  // expands beyond the limit, as far as it was read.
  absl::Status status() const;

 private:
  class Expander;
  InputFile() = default;

  std::ifstream file_;
  std::unique_ptr<Expander> expander_;  // none for a plain file
  std::unique_ptr<std::istream> expanded_;
  std::istream* stream_ = nullptr;
};

}  // namespace pipewright
