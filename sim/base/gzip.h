// A file as a stream, gzip or not: traces come as .json and as .json.gz. The
// type is detected from the first bytes, not from the name. A byte order mark
// in front of the text is left out.
#pragma once

#include <cstdint>
#include <istream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/base/input.h"

namespace pipewright {

// `text` as a gzip file, packed more for speed than for size.
std::string Gzip(absl::string_view text);

class InputFile {
 public:
  // Error: that of OpenInput; kNotFound for an empty file.
  static absl::StatusOr<std::unique_ptr<InputFile>> Open(
      const std::string& path, InputKind kind = InputKind::kTrace);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  // Ends early where the file is broken or too large: a reader must ask
  // status() afterwards, whatever it has read.
  std::istream& stream() { return *stream_; }
  // kInvalidArgument, with the path, for a file that is no whole gzip file, or
  // has more than MostBytes of its kind or than kMostExpansion times its
  // packed size, as far as it was read.
  absl::Status status() const;

 private:
  class Source;
  class Plain;
  class Expander;
  InputFile() = default;

  std::unique_ptr<Source> source_;
  std::unique_ptr<Plain> plain_;
  std::unique_ptr<Expander> expander_;  // none for a plain file
  std::unique_ptr<std::istream> stream_;
};

}  // namespace pipewright
