#include "execute/run/shared_blocks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "execute/run/party.h"
#include "execute/run/run_processes.h"
#include "sim/base/check.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// What the widest loads like, and more than a cache line.
constexpr size_t kBlockAlignment = 4096;

std::string BlockName(const std::string& run, size_t index) {
  return absl::StrCat("/pipewright-", run, "-", index);
}

// Nobody else's.
std::string NewRunName() {
  std::random_device random;
  return absl::StrCat(getpid(), "-", random(), "-", random());
}

absl::Status Failed(const std::string& name, const char* what, int code) {
  const std::string text =
      absl::StrCat("shared memory ", name, ": ", what, ": ", strerror(code));
  return code == ENOSPC || code == ENOMEM ? absl::ResourceExhaustedError(text)
                                          : absl::UnavailableError(text);
}

// Maps a block that is there or, with `creates`, makes it.
absl::StatusOr<void*> Map(const std::string& name, size_t bytes, bool creates) {
  const int file =
      shm_open(name.c_str(), O_RDWR | (creates ? O_CREAT | O_EXCL : 0), 0600);
  if (file < 0) return Failed(name, "cannot be opened", errno);
  // Pages that are not there would kill the process when it touches them.
  const int code =
      creates ? posix_fallocate(file, 0, static_cast<off_t>(bytes)) : 0;
  void* const memory = code != 0 ? MAP_FAILED
                                 : mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                        MAP_SHARED, file, 0);
  const int mapped = code != 0 ? code : errno;
  close(file);
  if (memory != MAP_FAILED) return memory;
  if (creates) shm_unlink(name.c_str());
  return Failed(name, "cannot be mapped", mapped);
}

}  // namespace

std::shared_ptr<SharedBlocks> SharedBlocks::OfThreads(
    const std::vector<size_t>& bytes) {
  std::shared_ptr<SharedBlocks> shared(new SharedBlocks);
  for (const size_t each : bytes) {
    const size_t whole =
        (each + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
    void* const memory = aligned_alloc(kBlockAlignment, whole);
    PW_CHECK(memory != nullptr);
    memset(memory, 0, whole);
    shared->blocks_.push_back({memory, whole, false});
  }
  return shared;
}

absl::StatusOr<std::shared_ptr<SharedBlocks>> SharedBlocks::OfProcesses(
    ProcessGroup* job, double timeout_s, const std::vector<size_t>& bytes) {
  std::shared_ptr<SharedBlocks> shared(new SharedBlocks);
  shared->blocks_.resize(bytes.size());
  const auto own = static_cast<size_t>(job->process());
  const absl::StatusOr<std::string> run = FirstOfAll(job, timeout_s, [] {
    return FirstWord{
        absl::StrCat("machine (memory is shared within one): ", MachineName()),
        NewRunName()};
  });
  PW_RETURN_IF_ERROR(run.status());
  const auto map = [&](size_t index, bool creates) -> absl::Status {
    PW_ASSIGN_OR_RETURN(void* const memory,
                        Map(BlockName(*run, index), bytes[index], creates));
    shared->blocks_[index] = {memory, bytes[index], true};
    return absl::OkStatus();
  };
  absl::Status made =
      FirstOfAll(job, timeout_s, [&]() -> absl::StatusOr<FirstWord> {
        PW_RETURN_IF_ERROR(map(own, true));
        return FirstWord();
      }).status();
  if (made.ok()) {
    made = FirstOfAll(job, timeout_s, [&]() -> absl::StatusOr<FirstWord> {
             for (size_t index = 0; index < bytes.size(); ++index) {
               if (index == own) continue;
               PW_RETURN_IF_ERROR(map(index, false));
             }
             return FirstWord();
           }).status();
  }
  // Whoever has it mapped keeps it; nothing stays behind, however the run ends.
  if (shared->blocks_[own].mapped) shm_unlink(BlockName(*run, own).c_str());
  PW_RETURN_IF_ERROR(made);
  return shared;
}

SharedBlocks::~SharedBlocks() {
  for (const Block& block : blocks_) {
    if (block.memory == nullptr) continue;
    if (block.mapped) {
      munmap(block.memory, block.bytes);
    } else {
      free(block.memory);
    }
  }
}

}  // namespace pipewright
