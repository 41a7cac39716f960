// GPUs that transfer over NCCL when they are told to, timed by events on the
// devices: threads of one process (nccl_transfers.h) or processes of a job
// (nccl_processes.h).
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/nccl_member.h"
#include "sim/base/status.h"

namespace pipewright {

class NcclParty {
 public:
  virtual ~NcclParty() = default;

  virtual int members() const = 0;
  // Bytes of the largest transfer: what memory allows of the wanted ones.
  virtual int64_t most_bytes() const = 0;

  // The first `members` become a communicator; to be called once before
  // transfers of so many. Errors of this and all below: kUnavailable, the first
  // that a member had. It ended the work of all of them, and every later call
  // returns it.
  virtual absl::Status Join(int members) = 0;
  // Queues all transfers, and waits for them: seconds of one on the slowest
  // member.
  virtual absl::Status Begin(const NcclTransfer& transfer) = 0;
  virtual absl::StatusOr<double> End() = 0;
  absl::StatusOr<double> Time(const NcclTransfer& transfer) {
    PW_RETURN_IF_ERROR(Begin(transfer));
    return End();
  }
};

// Bytes of a transfer, at most `wanted`, that memory allows: two buffers, in an
// eighth of `free_bytes`, since passes are measured too and NCCL has buffers of
// its own. 0: too few to measure anything with.
int64_t TransferRoom(int64_t wanted, int64_t free_bytes);
absl::Status NoTransferRoom(int64_t free_bytes);

}  // namespace pipewright
