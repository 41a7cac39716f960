// Messages from rank to rank. An Endpoint is one rank's end; between two
// endpoints messages keep their order. Rows: threads of one process
// (thread_transport.h), processes under MPI or started by hand
// (mpi_transport.h, socket_job.h), and in front of one of them NCCL for what
// lies on GPUs (nccl_transport.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "execute/transport/message.h"
#include "sim/program/op_kind.h"

namespace pipewright {

enum class Received {
  kMessage,
  kTimeOut,
  kStuck,  // every rank waits and nothing is under way: a deadlock
  kEnded,  // the job is ended from outside, see Endpoint::ended_by()
};

// A collective that the transport does itself, once all members have met.
struct Collective {
  OpKind kind = OpKind::kAllReduce;  // or kReduceScatter, kAllGather
  int32_t group = 0;
  int64_t meeting = 0;
  int self = 0;
  // Values in fp32, computed: [member] of a reduce-scatter, else the one for
  // all.
  std::vector<Payload> give;
  std::vector<size_t> bytes;  // [member] of what an all-gather brings
  // When it has ended: the sum, or [member] of an all-gather.
  std::vector<Payload> parts;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;

  // Called before the run, at the same time on all ranks. The memory is null on
  // a rank that could not make a worker, and the others learn of it.
  virtual absl::Status Connect(DeviceMemory*) { return absl::OkStatus(); }
  // Called after the rank's run. Where it ended well (true), it waits until all
  // that was sent has gone. Otherwise what is under way ends now.
  virtual absl::Status Disconnect(bool) { return absl::OkStatus(); }

  // Never blocks on the receiver. Messages to itself are allowed.
  virtual void Send(Address to, RankMessage message) = 0;
  // The next message; waits at most `timeout_s`, with 0 not at all.
  virtual Received Receive(double timeout_s, RankMessage* message) = 0;
  // Work elsewhere that ends with a message to this rank has begun (+1) or
  // ended (-1). While some is under way, the rank's waiting is no deadlock.
  virtual void Pending(int change) = 0;
  // Is it known that the other rank, which has not answered, still runs, or did
  // so after `since_s` (SteadySeconds())? Then it computes. False where this
  // cannot be known.
  virtual bool RunsSince(Address, double) const { return false; }
  // This rank has made progress: it begins or has ended something of its own.
  virtual void GetsOn() {}
  // Since when (SteadySeconds()) the other rank computes the same thing, as far
  // as is known; 0: not known, or it does not compute.
  virtual double ComputesSince(Address) const { return 0; }
  // Why nothing will come any more, after kEnded.
  virtual std::string ended_by() const { return ""; }

  // Collectives on data of the device; without them the members give each
  // other their parts. kCombined says that one has ended.
  virtual bool combines() const { return false; }
  virtual void Combine(const std::shared_ptr<Collective>&) {}
};

}  // namespace pipewright
