// A block of memory for each rank of a run, which other ranks read and write
// themselves: of one process, or of processes on one machine (POSIX shared
// memory). All bytes are 0 at first. Who may touch what, and when, is its
// users' affair.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/transport/process_group.h"

namespace pipewright {

class SharedBlocks {
 public:
  // Bytes of [process or thread]; those of the ranks that are threads here.
  static std::shared_ptr<SharedBlocks> OfThreads(
      const std::vector<size_t>& bytes);
  // All processes of the job call it alike. Errors: kInvalidArgument on several
  // machines, kResourceExhausted where there is not so much shared memory; with
  // one status on all.
  static absl::StatusOr<std::shared_ptr<SharedBlocks>> OfProcesses(
      ProcessGroup* job, double timeout_s, const std::vector<size_t>& bytes);
  ~SharedBlocks();
  SharedBlocks(const SharedBlocks&) = delete;

  void* block(size_t index) const { return blocks_[index].memory; }

 private:
  struct Block {
    void* memory = nullptr;
    size_t bytes = 0;
    bool mapped = false;  // or allocated
  };
  SharedBlocks() = default;

  std::vector<Block> blocks_;
};

}  // namespace pipewright
