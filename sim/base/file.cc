#include "sim/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

absl::Status Failure(absl::string_view what, const std::string& path) {
  const int error = errno;
  const std::string message =
      absl::StrCat("cannot ", what, " ", path, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message)
                         : absl::InvalidArgumentError(message);
}

absl::Status WriteAll(int file, const std::string& path,
                      absl::string_view content) {
  const auto failure = [&path] {
    return absl::InternalError(
        absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
  };
  while (!content.empty()) {
    const ssize_t written = ::write(file, content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return failure();
    content.remove_prefix(static_cast<size_t>(written));
  }
  // Pipes and terminals have nothing to synchronise.
  const bool synced = ::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP;
  return synced ? absl::OkStatus() : failure();
}

// Devices and pipes cannot be replaced, only written.
absl::Status WriteInPlace(const std::string& path, absl::string_view content) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return Failure("write", path);
  const absl::Status status = WriteAll(file, path, content);
  ::close(file);
  return status;
}

// Where the links of `path` lead, so that a link stays one.
absl::StatusOr<std::string> Resolved(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return Failure("write", path);
  std::string target = resolved;
  std::free(resolved);
  return target;
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
  StagedFiles file;
  PW_RETURN_IF_ERROR(file.Add(path, content));
  return file.Commit();
}

StagedFiles::~StagedFiles() {
  for (const Staged& each : staged_) ::unlink(each.temporary.c_str());
}

absl::Status StagedFiles::Add(const std::string& path,
                              absl::string_view content) {
  struct stat old;
  const bool exists = ::stat(path.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) {
    errno = EISDIR;
    return Failure("write", path);
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) {
    return Failure("write", path);
  }
  if (exists && !S_ISREG(old.st_mode)) return WriteInPlace(path, content);
  std::string target = path;
  if (exists) {
    PW_ASSIGN_OR_RETURN(target, Resolved(path));
  } else if (struct stat link;
             ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cannot write ", path, ": a symbolic link to a file that is missing"));
  }
  std::string temporary = absl::StrCat(target, ".XXXXXX");
  const int file = ::mkstemp(temporary.data());
  if (file < 0) return Failure("write", path);
  staged_.push_back({temporary, target});
  // mkstemp makes the file private; give it the usual permissions instead, or
  // those of the file that it replaces.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(file, exists ? old.st_mode & 07777 : 0666 & ~mask);
  const absl::Status status = WriteAll(file, path, content);
  ::close(file);
  return status;
}

absl::Status StagedFiles::Commit() {
  while (!staged_.empty()) {
    const Staged& next = staged_.front();
    if (::rename(next.temporary.c_str(), next.target.c_str()) != 0) {
      return Failure("write", next.target);
    }
    staged_.erase(staged_.begin());
  }
  return absl::OkStatus();
}

}  // namespace pipewright
