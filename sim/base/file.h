// Files, whole: read, and written so that an interrupted write leaves the old
// file as it was.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Error: kNotFound when it is not there, kInvalidArgument when it cannot be
// read (a folder, no permission); both name the path.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Writes to a temporary file beside `path`, then renames it over `path`; a
// symbolic link stays and the file it names is replaced, with its permissions
// kept. A device or pipe is written as it stands. Errors name the path and the
// reason: kInvalidArgument or kNotFound where it cannot be opened, kInternal
// where writing fails (a full disk).
absl::Status WriteFile(const std::string& path, absl::string_view content);

// Several files of which all or none are to be there: what is likely to fail
// comes before the first is replaced.
class StagedFiles {
 public:
  StagedFiles() = default;
  // What has not been committed is not there.
  ~StagedFiles();
  StagedFiles(const StagedFiles&) = delete;

  // As WriteFile, but the rename; a device or pipe is written now.
  absl::Status Add(const std::string& path, absl::string_view content);
  // The renames. Error: the first that fails; those behind it are not done.
  absl::Status Commit();

 private:
  struct Staged {
    std::string temporary;
    std::string target;
  };
  std::vector<Staged> staged_;
};

}  // namespace pipewright
