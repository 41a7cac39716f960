// The owners of a run's layers: the memory of each, and who makes it.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/run/shared_blocks.h"
#include "execute/train/executed_model.h"
#include "execute/train/owner_memory.h"
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

}  // namespace pipewright
