// The owners of a run's layers: the memory of each, who makes it, and a rank as
// their client.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/run/shared_blocks.h"
#include "execute/train/executed_model.h"
#include "execute/train/owner_memory.h"
#include "execute/train/worker_device.h"
#include "execute/train/worker_options.h"
#include "execute/train/worker_stages.h"
#include "execute/transport/process_group.h"
#include "kernels/kernels.h"

namespace pipewright {

struct Program;

struct Owners {
  std::shared_ptr<SharedBlocks> blocks;
  std::vector<OwnerMemory> of;  // [replica * pp + rank]
};

// Do its replicas pull from owners and push to them?
bool HasOwners(const Program& program);

// [unit], without the copy of a table.
absl::StatusOr<std::vector<int64_t>> UnitParameters(const ExecutedModel& model,
                                                    const PwKernels* kernels,
                                                    int device_index);

// [replica * pp + rank]
std::vector<OwnerShape> OwnerShapes(const Program& program,
                                    const std::vector<int64_t>& parameters);

// `job`: null where the ranks are threads of this process. Elements that a
// client pushes at a time: those of the largest shard, or what its part of all
// clients' buffers takes. Errors: those of SharedBlocks.
absl::StatusOr<std::shared_ptr<Owners>> MakeOwners(const Program& program,
                                                   const ExecutedModel& model,
                                                   const PwKernels* kernels,
                                                   int device_index,
                                                   ProcessGroup* job,
                                                   double timeout_s);

// A rank that reads from owners and writes to them, and the service of its own
// part.
class OwnerClient {
 public:
  // All must outlive it.
  OwnerClient(const WorkerStages& stages, WorkerDevice& device)
      : stages_(stages), device_(device) {}
  // The stages are there. Nothing to do without options.owners, nor anything
  // to read or write.
  absl::Status Open(const WorkerOptions& options);
  bool is_open() const { return !memories_.empty(); }
  // On the host: the block that clients share, and the copy of the gradients
  // that are pushed.
  size_t bytes() const;

  // The weights of the own part, for others to read.
  absl::Status ShowWeights();
  // All clients' gradients have been added; nobody pushes before all have
  // stepped. Gives those of each unit to `take`, which leaves zeroes.
  absl::Status TakeSums(const std::function<void(int, float*)>& take) const;
  // Worker::StartReach. Error: `ended` will not be told.
  absl::Status StartReach(int32_t side_op, WorkThread::Ended ended);

 private:
  absl::Status Pull(int32_t side_op);
  absl::Status Push(int32_t side_op, const std::vector<float>& gradients);
  OwnerMemory& own() const { return *memories_[stages_.self().replica]; }

  const WorkerStages& stages_;
  WorkerDevice& device_;
  std::vector<OwnerMemory*> memories_;  // of this rank's replicas, [replica]
  std::map<int, int> place_of_unit_;    // among the rank's units
  double patience_s_ = 0;
  std::unique_ptr<OwnerService> service_;
};

}  // namespace pipewright
