#include "sim/analysis/sweep/writer_lock.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"

namespace pipewright {

absl::StatusOr<std::unique_ptr<WriterLock>> WriterLock::Take(
    const std::string& path) {
  // A file beside it: a lock of a process ends with the first descriptor of the
  // file that it closes, and SQLite closes them as it likes. Children of a
  // fork do not inherit it, so that it ends with the process.
  const std::string beside = absl::StrCat(path, "-lock");
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  while (true) {
    const int file = ::open(beside.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) {
      return AboutFile(path, absl::InvalidArgumentError(absl::StrCat(
                                 path, ": cannot be opened (", beside, ": ",
                                 std::strerror(errno), ")")));
    }
    if (::fcntl(file, F_SETLK, &range) != 0) {
      const int error = errno;
      ::close(file);
      if (error != EACCES && error != EAGAIN) {
        return AboutFile(path, absl::InvalidArgumentError(
                                   absl::StrCat(path, ": cannot be locked (",
                                                std::strerror(error), ")")));
      }
      return AboutFile(path, WithValue(absl::InvalidArgumentError(absl::StrCat(
                                           path,
                                           ": another pipewright sweep writes "
                                           "to it; allowed: wait for it, or "
                                           "another file")),
                                       path, "another file"));
    }
    // Who had it before may have removed it meanwhile.
    struct stat ours {};
    struct stat there {};
    if (::fstat(file, &ours) == 0 && ::stat(beside.c_str(), &there) == 0 &&
        ours.st_ino == there.st_ino) {
      return std::unique_ptr<WriterLock>(new WriterLock(beside, file));
    }
    ::close(file);
  }
}

WriterLock::~WriterLock() {
  ::unlink(beside_.c_str());
  ::close(file_);
}

}  // namespace pipewright
