// Blocks of memory of a run that several ranks read and write themselves: of
// one process, or of processes on one machine. All bytes are 0 at first. Who
// may touch what, and when, is its users' affair.
//
// Memory of several processes has no name, so that nothing of it is left
// however they end: process 0 makes it (memfd_create), and the others find it
// in /proc as one of its open files, which processes of one user may open.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/transport/process_group.h"

namespace pipewright {

class SharedBlocks {
 public:
  // `bytes`: of each block. Error: kResourceExhausted where there is not so
  // much memory.
  static absl::StatusOr<std::shared_ptr<SharedBlocks>> OfThreads(
      const std::vector<size_t>& bytes);
  // All processes of the job call it alike. Errors: kInvalidArgument on several
  // machines, kUnavailable where the memory of process 0 cannot be opened, and
  // that of OfThreads; with one status on all.
  static absl::StatusOr<std::shared_ptr<SharedBlocks>> OfProcesses(
      ProcessGroup* job, double timeout_s, const std::vector<size_t>& bytes);
  ~SharedBlocks();
  SharedBlocks(const SharedBlocks&) = delete;

  void* block(size_t index) const { return memory_ + begins_[index]; }
  size_t bytes() const { return bytes_; }  // all blocks together

 private:
  explicit SharedBlocks(const std::vector<size_t>& bytes);

  std::vector<size_t> begins_;
  size_t bytes_ = 0;
  char* memory_ = nullptr;
};

}  // namespace pipewright
