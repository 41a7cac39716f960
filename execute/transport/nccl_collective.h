// Collectives of the transport as calls of NCCL.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "execute/transport/nccl_comm.h"
#include "execute/transport/transport.h"

namespace pipewright {

// What to queue on the communicator of the members; fills in
// collective->parts, which have their contents once it has ended. Takes memory
// of `memory`. Shards of one size are one call of the library, others, which
// it has no call for, a group of one per member.
absl::StatusOr<NcclComm::Operation> CombineOperation(
    const std::shared_ptr<Collective>& collective, DeviceMemory* memory);

}  // namespace pipewright
