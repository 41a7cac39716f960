#include "execute/run/shared_blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "execute/run/run_processes.h"
#include "kernels/cpu/free_memory.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// What the widest loads like, and more than a cache line.
constexpr size_t kBlockAlignment = 4096;

absl::Status NotEnough(size_t bytes, absl::string_view there) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "strategy.data_parallel odc: owners need ",
      FormatBytes(static_cast<double>(bytes)), " of memory that ranks share, ",
      there, "; allowed: fewer replicas or a smaller model"));
}

// Memory that is not there would end the process when it touches it.
absl::Status CheckAvailable(size_t bytes) {
  const int64_t available = FreeMemory();
  if (available < 0 || bytes <= static_cast<size_t>(available)) {
    return absl::OkStatus();
  }
  return NotEnough(
      bytes, absl::StrCat("and ", FormatBytes(static_cast<double>(available)),
                          " are free"));
}

absl::StatusOr<char*> MapFile(int file, size_t bytes) {
  void* const memory =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory != MAP_FAILED) return static_cast<char*>(memory);
  return NotEnough(bytes,
                   absl::StrCat("which cannot be mapped: ", strerror(errno)));
}

// The open file of a process, and which file that is: numbers of processes may
// mean others elsewhere.
struct OpenFile {
  std::string path;
  uint64_t number = 0;
};

absl::StatusOr<int> OpenOther(const OpenFile& other) {
  constexpr char kAllowed[] =
      "; allowed: processes of one user that see each other in /proc";
  const int file = open(other.path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) {
    return absl::UnavailableError(
        absl::StrCat("memory of process 0, ", other.path,
                     ", cannot be opened: ", strerror(errno), kAllowed));
  }
  struct stat is {};
  if (fstat(file, &is) == 0 && is.st_ino == other.number) return file;
  close(file);
  return absl::UnavailableError(absl::StrCat("memory of process 0 is not ",
                                             other.path, " here", kAllowed));
}

}  // namespace

SharedBlocks::SharedBlocks(const std::vector<size_t>& bytes) {
  for (const size_t each : bytes) {
    begins_.push_back(bytes_);
    bytes_ += (each + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
  }
}

absl::StatusOr<std::shared_ptr<SharedBlocks>> SharedBlocks::OfThreads(
    const std::vector<size_t>& bytes) {
  std::shared_ptr<SharedBlocks> shared(new SharedBlocks(bytes));
  PW_RETURN_IF_ERROR(CheckAvailable(shared->bytes_));
  void* const memory = mmap(nullptr, shared->bytes_, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    return NotEnough(shared->bytes_,
                     absl::StrCat("which cannot be mapped: ", strerror(errno)));
  }
  shared->memory_ = static_cast<char*>(memory);
  return shared;
}

absl::StatusOr<std::shared_ptr<SharedBlocks>> SharedBlocks::OfProcesses(
    ProcessGroup* job, double timeout_s, const std::vector<size_t>& bytes) {
  std::shared_ptr<SharedBlocks> shared(new SharedBlocks(bytes));
  // Open until all have it mapped.
  struct File {
    ~File() {
      if (number >= 0) close(number);
    }
    int number = -1;
  } own;
  const auto make = [&]() -> absl::StatusOr<FirstWord> {
    FirstWord word = {
        absl::StrCat("machine (memory is shared within one): ", MachineName())};
    if (job->process() != 0) return word;
    PW_RETURN_IF_ERROR(CheckAvailable(shared->bytes_));
    own.number = memfd_create("pipewright-owners", MFD_CLOEXEC);
    if (own.number < 0) {
      return absl::UnavailableError(
          absl::StrCat("memfd_create: ", strerror(errno)));
    }
    int code = EINTR;
    while (code == EINTR) {
      code = posix_fallocate(own.number, 0, static_cast<off_t>(shared->bytes_));
    }
    if (code != 0) {
      return NotEnough(shared->bytes_,
                       absl::StrCat("which are not there: ", strerror(code)));
    }
    struct stat is {};
    if (fstat(own.number, &is) != 0) {
      return absl::UnavailableError(absl::StrCat("fstat: ", strerror(errno)));
    }
    word.decision =
        absl::StrCat("/proc/", getpid(), "/fd/", own.number, " ", is.st_ino);
    return word;
  };
  PW_ASSIGN_OR_RETURN(const std::string told, FirstOfAll(job, timeout_s, make));
  const auto map = [&]() -> absl::StatusOr<FirstWord> {
    if (job->process() != 0) {
      const std::vector<std::string> words = absl::StrSplit(told, ' ');
      OpenFile other;
      if (words.size() != 2 || !absl::SimpleAtoi(words[1], &other.number)) {
        return absl::InternalError(absl::StrCat("shared memory: ", told));
      }
      other.path = words[0];
      PW_ASSIGN_OR_RETURN(own.number, OpenOther(other));
    }
    PW_ASSIGN_OR_RETURN(shared->memory_, MapFile(own.number, shared->bytes_));
    return FirstWord();
  };
  PW_RETURN_IF_ERROR(FirstOfAll(job, timeout_s, map).status());
  return shared;
}

SharedBlocks::~SharedBlocks() {
  if (memory_ != nullptr) munmap(memory_, bytes_);
}

}  // namespace pipewright
