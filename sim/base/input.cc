#include "sim/base/input.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kVariable[] = "PIPEWRIGHT_MAX_INPUT";
constexpr int64_t kPiece = 1 << 16;

absl::Status CannotRead(const std::string& path, absl::string_view why,
                        bool is_missing = false) {
  const std::string message = absl::StrCat("cannot read ", path, ": ", why);
  // The message has the path already; it is a part all the same.
  return AboutFile(path, is_missing ? absl::NotFoundError(message)
                                    : absl::InvalidArgumentError(message));
}

absl::Status CannotRead(const std::string& path, int error) {
  return CannotRead(path, std::strerror(error), error == ENOENT);
}

bool IsStandardInput(const struct stat& info) {
  struct stat standard;
  return ::fstat(STDIN_FILENO, &standard) == 0 &&
         standard.st_dev == info.st_dev && standard.st_ino == info.st_ino &&
         ::isatty(STDIN_FILENO) != 0;
}

// The name of what cannot be read, by `info`; "" for a file or a pipe.
absl::string_view Refused(const struct stat& info) {
  switch (info.st_mode & S_IFMT) {
    case S_IFDIR:
      return "a folder";
    case S_IFBLK:
      return "a block device";
    case S_IFCHR:
      return IsStandardInput(info) ? "" : "a character device";
    case S_IFSOCK:
      return "a socket";
    default:
      return "";
  }
}

absl::Status CheckKind(const std::string& path, const struct stat& info) {
  const absl::string_view refused = Refused(info);
  if (refused.empty()) return absl::OkStatus();
  constexpr char kReadable[] = "a file or a pipe";
  return WithValue(CannotRead(path, absl::StrCat("it is ", refused,
                                                 "; allowed: ", kReadable)),
                   path, kReadable);
}

int64_t OwnLimit(InputKind kind) {
  switch (kind) {
    case InputKind::kConfiguration:
      return int64_t{16} << 20;
    case InputKind::kSchedule:
    case InputKind::kProfile:
      return int64_t{1} << 30;
    case InputKind::kTrace:
      return int64_t{16} << 30;
  }
  return 0;
}

InputWatch& Watch() {
  static InputWatch watch = nullptr;
  return watch;
}

}  // namespace

void WatchInput(InputWatch watch) { Watch() = watch; }

absl::string_view InputName(InputKind kind) {
  switch (kind) {
    case InputKind::kConfiguration:
      return "configuration";
    case InputKind::kSchedule:
      return "schedule";
    case InputKind::kProfile:
      return "profile or table";
    case InputKind::kTrace:
      return "trace";
  }
  return "";
}

absl::StatusOr<int64_t> RaisedLimit() {
  const char* const text = std::getenv(kVariable);
  if (text == nullptr || text[0] == '\0') return 0;
  const absl::StatusOr<double> bytes = ParseQuantity(text, Unit::kBytes);
  PW_RETURN_IF_ERROR(InField(kVariable, bytes.status()));
  PW_RETURN_IF_ERROR(
      InField(kVariable, CheckAmount(*bytes, text, Unit::kBytes)));
  return static_cast<int64_t>(*bytes);
}

absl::StatusOr<int64_t> MostBytes(InputKind kind) {
  PW_ASSIGN_OR_RETURN(const int64_t raised, RaisedLimit());
  return std::max(OwnLimit(kind), raised);
}

absl::Status TooLarge(const std::string& path, InputKind kind, int64_t most) {
  const std::string limit = FormatBytes(static_cast<double>(most));
  const std::string allowed =
      absl::StrCat("a ", InputName(kind), " of at most ", limit);
  return InFile(path, 0,
                WithValue(absl::InvalidArgumentError(absl::StrCat(
                              "has more than ", limit, "; allowed: ", allowed,
                              " (", kVariable, "=SIZE raises the limit)")),
                          "", allowed));
}

absl::StatusOr<OpenInput> OpenInput::Open(const std::string& path,
                                          InputKind kind, int64_t most) {
  struct stat info;
  // This comes before it is opened, because to open a device may do something.
  if (::stat(path.c_str(), &info) != 0) return CannotRead(path, errno);
  PW_RETURN_IF_ERROR(CheckKind(path, info));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return CannotRead(path, errno);
  OpenInput input(file, path, -1);
  // The path may name another file by now.
  if (::fstat(file, &info) != 0) return CannotRead(path, errno);
  PW_RETURN_IF_ERROR(CheckKind(path, info));
  if (S_ISREG(info.st_mode)) input.size_ = info.st_size;
  if (input.size_ > most) return TooLarge(path, kind, most);
  return input;
}

OpenInput::~OpenInput() {
  if (file_ >= 0) ::close(file_);
}

OpenInput::OpenInput(OpenInput&& other) noexcept
    : file_(std::exchange(other.file_, -1)),
      path_(std::move(other.path_)),
      size_(other.size_) {}

absl::StatusOr<int64_t> OpenInput::Read(char* buffer, int64_t size) {
  while (true) {
    const ssize_t count = ::read(file_, buffer, static_cast<size_t>(size));
    if (count >= 0) {
      read_ += count;
      if (Watch() != nullptr && size_ > 0) {
        // A file may have grown.
        const double part = static_cast<double>(read_) / size_;
        Watch()(path_, count == 0 ? 1 : std::min(part, 1.0));
      }
      return count;
    }
    if (errno != EINTR) return CannotRead(path_, errno);
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, InputKind kind) {
  PW_ASSIGN_OR_RETURN(const int64_t most, MostBytes(kind));
  PW_ASSIGN_OR_RETURN(OpenInput input, OpenInput::Open(path, kind, most));
  std::string content;
  if (input.size() > 0) content.reserve(static_cast<size_t>(input.size()));
  char piece[kPiece];
  while (true) {
    PW_ASSIGN_OR_RETURN(const int64_t count, input.Read(piece, kPiece));
    if (count == 0) {
      content.erase(0, ByteOrderMarkSize(content));
      return content;
    }
    // A file may grow, and a pipe has no end that is known.
    if (static_cast<int64_t>(content.size()) + count > most) {
      return TooLarge(path, kind, most);
    }
    content.append(piece, static_cast<size_t>(count));
  }
}

}  // namespace pipewright
