#include "sim/base/file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sim/base/digest.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

absl::Status Failure(const std::string& path) {
  const int error = errno;
  const std::string message =
      absl::StrCat("cannot write ", path, ": ", std::strerror(error));
  return AboutFile(path, error == ENOENT ? absl::NotFoundError(message)
                                         : absl::InvalidArgumentError(message));
}

// `write` takes what is left and gives what it has written of it, as ::write.
template <typename Write>
bool WriteWhole(absl::string_view bytes, const Write& write) {
  while (!bytes.empty()) {
    const ssize_t written = write(bytes);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

absl::Status WriteAndSync(int file, const std::string& path,
                          absl::string_view content) {
  const auto failure = [&path] {
    return AboutFile(
        path, absl::InternalError(absl::StrCat("cannot write ", path, ": ",
                                               std::strerror(errno))));
  };
  if (!WriteAll(file, content)) return failure();
  // Pipes and terminals have nothing to synchronise.
  const bool synced = ::fsync(file) == 0 || errno == EINVAL || errno == ENOTSUP;
  return synced ? absl::OkStatus() : failure();
}

// Devices and pipes cannot be replaced, only written.
absl::Status WriteInPlace(const std::string& path, absl::string_view content) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (file < 0) return Failure(path);
  const absl::Status status = WriteAndSync(file, path, content);
  ::close(file);
  return status;
}

// Where the links of `path` lead, so that a link stays one.
absl::StatusOr<std::string> Resolved(const std::string& path) {
  char* resolved = ::realpath(path.c_str(), nullptr);
  if (resolved == nullptr) return Failure(path);
  std::string target = resolved;
  std::free(resolved);
  return target;
}

// The descriptor that /dev/stdout and its like stand for; -1 for another path.
// What they lead to is not replaced: others write to it too.
int DescriptorOf(absl::string_view path) {
  if (path == "/dev/stdout") return STDOUT_FILENO;
  if (path == "/dev/stderr") return STDERR_FILENO;
  int descriptor = -1;
  if (absl::ConsumePrefix(&path, "/dev/fd/") ||
      absl::ConsumePrefix(&path, "/proc/self/fd/")) {
    return absl::SimpleAtoi(path, &descriptor) ? descriptor : -1;
  }
  return -1;
}

absl::Status WriteDescriptor(int descriptor, const std::string& path,
                             absl::string_view content) {
  // What was printed before comes first.
  std::fflush(descriptor == STDOUT_FILENO ? stdout : nullptr);
  return WriteAndSync(descriptor, path, content);
}

// Names of the temporary files of one target: all of one length, however long
// its name.
std::string TemporaryPrefix(const std::string& target) {
  const size_t slash = target.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "" : target.substr(0, slash + 1);
  const std::string name =
      slash == std::string::npos ? target : target.substr(slash + 1);
  return absl::StrCat(folder, ".pipewright-", Digest(name), "-");
}

constexpr absl::string_view kRandom = "XXXXXX";

// The writer of a file holds its lock, and the lock ends with the process. So a
// file that can be locked has no writer any more.
void RemoveIfStale(const std::string& path) {
  struct stat info;
  if (::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != ::geteuid()) {
    return;
  }
  const int file =
      ::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return;
  if (::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
  ::close(file);
}

void RemoveStale(const std::string& target) {
  const std::string prefix = TemporaryPrefix(target);
  const size_t slash = prefix.rfind('/');
  const std::string folder =
      slash == std::string::npos ? "." : prefix.substr(0, slash + 1);
  const std::string name =
      slash == std::string::npos ? prefix : prefix.substr(slash + 1);
  DIR* const entries = ::opendir(folder.c_str());
  if (entries == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* const entry = ::readdir(entries)) {
    const absl::string_view each = entry->d_name;
    if (each.size() == name.size() + kRandom.size() &&
        absl::StartsWith(each, name)) {
      found.emplace_back(each);
    }
  }
  ::closedir(entries);
  for (const std::string& each : found) {
    RemoveIfStale(absl::StrCat(folder, "/", each));
  }
}

// Makes a temporary file that is locked; its name goes into `path`. -1 with
// errno.
int MakeTemporary(const std::string& target, std::string* path) {
  while (true) {
    *path = absl::StrCat(TemporaryPrefix(target), kRandom);
    const int file = ::mkostemp(path->data(), O_CLOEXEC);
    if (file < 0) return file;
    // On a file system without locks no process removes stale files either.
    ::flock(file, LOCK_EX);
    struct stat info;
    // Another process may have taken it for stale before it was locked.
    if (::fstat(file, &info) != 0 || info.st_nlink > 0) return file;
    ::close(file);
  }
}

}  // namespace

bool ReadAll(int file, void* into, size_t size) {
  char* next = static_cast<char*>(into);
  while (size > 0) {
    const ssize_t got = ::read(file, next, size);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    next += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

bool WriteAll(int file, absl::string_view bytes) {
  return WriteWhole(bytes, [file](absl::string_view rest) {
    return ::write(file, rest.data(), rest.size());
  });
}

bool SendAll(int socket, absl::string_view bytes) {
  return WriteWhole(bytes, [socket](absl::string_view rest) {
    return ::send(socket, rest.data(), rest.size(), MSG_NOSIGNAL);
  });
}

bool IsDescriptor(absl::string_view path) { return DescriptorOf(path) >= 0; }

absl::Status WriteFile(const std::string& path, absl::string_view content) {
  StagedFiles file;
  PW_RETURN_IF_ERROR(file.Add(path, content));
  return file.Commit();
}

StagedFiles::~StagedFiles() {
  for (const Staged& each : staged_) {
    ::unlink(each.temporary.c_str());
    ::close(each.file);
  }
}

absl::Status StagedFiles::Add(const std::string& path,
                              absl::string_view content) {
  if (const int descriptor = DescriptorOf(path); descriptor >= 0) {
    return WriteDescriptor(descriptor, path, content);
  }
  struct stat old;
  const bool exists = ::stat(path.c_str(), &old) == 0;
  if (exists && S_ISDIR(old.st_mode)) {
    errno = EISDIR;
    return Failure(path);
  }
  if (exists && ::access(path.c_str(), W_OK) != 0) {
    return Failure(path);
  }
  if (exists && !S_ISREG(old.st_mode)) return WriteInPlace(path, content);
  std::string target = path;
  if (exists) {
    PW_ASSIGN_OR_RETURN(target, Resolved(path));
  } else if (struct stat link;
             ::lstat(path.c_str(), &link) == 0 && S_ISLNK(link.st_mode)) {
    return AboutFile(path, absl::InvalidArgumentError(absl::StrCat(
                               "cannot write ", path,
                               ": a symbolic link to a file that is missing")));
  }
  RemoveStale(target);
  std::string temporary;
  const int file = MakeTemporary(target, &temporary);
  if (file < 0) return Failure(path);
  staged_.push_back({temporary, target, file});
  // mkostemp makes the file private; give it the usual permissions instead, or
  // those of the file that it replaces.
  const mode_t mask = ::umask(0);
  ::umask(mask);
  ::fchmod(file, exists ? old.st_mode & 07777 : 0666 & ~mask);
  return WriteAndSync(file, path, content);
}

absl::Status StagedFiles::Commit() {
  while (!staged_.empty()) {
    const Staged& next = staged_.front();
    if (::rename(next.temporary.c_str(), next.target.c_str()) != 0) {
      return Failure(next.target);
    }
    ::close(next.file);
    staged_.erase(staged_.begin());
  }
  return absl::OkStatus();
}

}  // namespace pipewright
