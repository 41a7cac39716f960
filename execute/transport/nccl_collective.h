// Collectives of the transport as calls of NCCL.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "execute/transport/nccl_comm.h"
#include "execute/transport/transport.h"

namespace pipewright {

// Returns what to queue on the members' communicator. Fills in
// collective->parts, which have their contents once it has ended. The memory
// comes from `memory`. Shards of one size are one call of the library. It has
// no call for other shards, so they are a group of one call for each member.
absl::StatusOr<NcclComm::Operation> CombineOperation(
    const std::shared_ptr<Collective>& collective, DeviceMemory* memory);

}  // namespace pipewright
