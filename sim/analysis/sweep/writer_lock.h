// One writer for a file of a sweep.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace pipewright {

// Holds a file beside `path`, whatever happens to `path` itself, until it is
// destroyed or its process ends.
class WriterLock {
 public:
  // Error: kInvalidArgument naming the path where another process holds it, and
  // where no file can be made.
  static absl::StatusOr<std::unique_ptr<WriterLock>> Take(
      const std::string& path);
  ~WriterLock();
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  WriterLock(std::string beside, int file)
      : beside_(std::move(beside)), file_(file) {}

  std::string beside_;
  int file_;
};

}  // namespace pipewright
