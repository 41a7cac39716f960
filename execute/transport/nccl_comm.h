// One communicator of the NCCL transport and what is queued on it: the order
// of calls, and what has ended. No messages; see nccl_transport.h. Used by one
// thread at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/nccl/module.h"
#include "execute/transport/transport.h"

namespace pipewright {

class NcclComm {
 public:
  struct Operation {
    std::string what;  // "receive of 4096 bytes from rank 1"
    // Calls on the communicator; below 0 on failure.
    std::function<int(const PwNccl&, PwNcclComm*)> issue;
    std::function<void()> ended;  // may be null
    double since_s = 0;           // on the clock of SteadySeconds
  };

  // Takes over `comm`, which the last call may still be making.
  NcclComm(const PwNccl& nccl, PwNcclComm* comm) : nccl_(nccl), comm_(comm) {}
  // Leaves in good order where nothing is under way, and aborts otherwise.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;

  void Enqueue(Operation operation);
  // Does what can be done without waiting. Error: kUnavailable with what the
  // library says, or the operation that is under way for `longest_s`.
  absl::Status Pump(double longest_s);
  bool idle() const { return queued_.empty() && running_.empty(); }
  // After it everything that was queued is forgotten; nothing reads or writes
  // its memory any more.
  void Abort();

 private:
  absl::Status Failed(const Operation* operation) const;

  const PwNccl& nccl_;
  PwNcclComm* comm_;
  bool calling_ = true;  // the last call may not be over on the host
  bool issued_ = false;  // and it was that of queued_.front()
  std::deque<Operation> queued_;
  std::deque<Operation> running_;  // marked on the stream
  int64_t reached_ = 0;
};

// Collectives of the transport as calls of NCCL.

// Returns what to queue on the members' communicator. Fills in
// collective->parts, which have their contents once it has ended. The memory
// comes from `memory`. Shards of one size are one call of the library. It has
// no call for other shards, so they are a group of one call for each member.
absl::StatusOr<NcclComm::Operation> CombineOperation(
    const std::shared_ptr<Collective>& collective, DeviceMemory* memory);

}  // namespace pipewright
