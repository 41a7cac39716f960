// Writes files as a whole, so that an interrupted write leaves the old file as
// it was. input.h reads them. And all bytes of an open descriptor, whatever
// signals and full buffers cut off.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/base/input.h"

namespace pipewright {

// True for /dev/stdout and its like, which stand for what is open already.
bool IsDescriptor(absl::string_view path);

// Writes to a temporary file beside `path`, then renames it over `path`; a
// symbolic link stays and the file it names is replaced, with its permissions
// kept. A device, a pipe or /dev/stdout is written as it stands. What a killed
// process has left of the same file is removed. Errors name the path and the
// reason: kInvalidArgument or kNotFound where it cannot be opened, kInternal
// where writing fails (a full disk).
absl::Status WriteFile(const std::string& path, absl::string_view content);

// Each goes on after a signal and after a part. False: it has failed, and errno
// says why; ReadAll's also at the end of the file.
bool ReadAll(int file, void* into, size_t size);
bool WriteAll(int file, absl::string_view bytes);
// To a socket: one that nobody reads any more is an error, no signal.
bool SendAll(int socket, absl::string_view bytes);

// Writes several files, all or none: the steps that are likely to fail come
// before the first file is replaced.
class StagedFiles {
 public:
  StagedFiles() = default;
  // Files that have not been committed do not appear.
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;

  // As WriteFile without the rename; a device or pipe is written at once.
  absl::Status Add(const std::string& path, absl::string_view content);
  // Renames the files. Error: the first rename that fails; the later ones are
  // not done.
  absl::Status Commit();

 private:
  struct Staged {
    std::string temporary;
    std::string target;
    int file;  // locked, so that others see that somebody writes it
  };
  std::vector<Staged> staged_;
};

}  // namespace pipewright
