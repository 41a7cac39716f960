#include "sim/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

absl::Status Failure(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string message =
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message)
                         : absl::InvalidArgumentError(message);
}

absl::Status WriteAll(int file, absl::string_view content) {
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::InternalError(std::strerror(errno));
    content.remove_prefix(static_cast<size_t>(written));
  }
  return ::fsync(file) == 0 || errno == EINVAL
             ? absl::OkStatus()
             : absl::InternalError(std::strerror(errno));
}

}  // namespace

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return Failure("read", path);
  std::string content;
  char buffer[1 << 16];
  while (true) {
    const ssize_t count = ::read(file, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      const absl::Status status = Failure("read", path);
      ::close(file);
      return status;
    }
    if (count == 0) break;
    content.append(buffer, static_cast<size_t>(count));
  }
  ::close(file);
  return content;
}

absl::Status WriteFile(const std::string& path, absl::string_view content) {
  std::string temporary = absl::StrCat(path, ".XXXXXX");
  const int file = ::mkstemp(temporary.data());
  if (file < 0) return Failure("write", path);
  // mkstemp makes the file private; give it the usual permissions instead.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(file, 0666 & ~mask);
  const absl::Status status = WriteAll(file, content);
  ::close(file);
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return absl::InvalidArgumentError(
        absl::StrCat("cannot write ", path, ": ", status.message()));
  }
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const absl::Status failure = Failure("write", path);
    ::unlink(temporary.c_str());
    return failure;
  }
  return absl::OkStatus();
}

}  // namespace pipewright
