// One GPU as a member of timed transfers over NCCL: its buffers, its
// communicators and the calls on them. It does not know who the others are:
// those are a NcclParty. Used by one thread. No messages of a schedule: those
// are nccl_transport.h.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/transport/nccl/module.h"
#include "kernels/kernels.h"
#include "sim/base/status.h"
#include "sim/program/op_kind.h"

namespace pipewright {

// What is timed. kSend: from member 0 to member 1 and back, halved, so that
// data has come before it goes on; nccl-tests' sendrecv has both directions at
// once, and one direction alone would end for a sender when its data is on the
// way. The rest: kAllReduce, kAllGather, kReduceScatter, out of place.
struct NcclTransfer {
  OpKind kind = OpKind::kSend;
  int members = 2;    // the first so many take part; 2 for kSend
  int64_t bytes = 0;  // as TransferEntry has them; at least 4 a member
  int repeats = 1;    // on end
};
std::string NameOf(const NcclTransfer& transfer);

class NcclMember {
 public:
  struct Options {
    const PwNccl* nccl = nullptr;
    const PwKernels* kernels = nullptr;
    int device = 0;
    int self = 0;
    double timeout_s = 60;  // for everything that others take part in
    // Has another member failed? Asked while this one waits.
    std::function<bool()> given_up;
  };
  // Error: kUnavailable, what the backend says.
  static absl::StatusOr<std::unique_ptr<NcclMember>> Open(Options options);
  // Leaves in good order, unless CutOff was called or another has failed.
  ~NcclMember();
  NcclMember(const NcclMember&) = delete;

  int64_t free_bytes() const { return free_bytes_; }  // when it was opened
  // Takes memory for transfers of up to so many bytes: twice as much, filled
  // with random numbers. Error: kResourceExhausted.
  absl::Status Reserve(int64_t bytes);
  void Release();
  // Joins a communicator of so many members and waits for all of them. Errors
  // of this and the following: kUnavailable with NCCL's message or the
  // operation that takes too long; kCancelled when another has failed.
  absl::Status Join(const PwNcclId& id, int members);
  // Queues the transfers after a small all-reduce, which lets all members start
  // together. Does not wait for their end.
  absl::Status Begin(const NcclTransfer& transfer);
  // Waits for their end; seconds of one by this device's clock.
  absl::StatusOr<double> End(const NcclTransfer& transfer);
  // Ends what is under way, for the others too.
  void CutOff();

 private:
  struct Comm {
    PwNcclComm* comm = nullptr;
    int64_t marks = 0;
  };

  explicit NcclMember(Options options) : options_(std::move(options)) {}
  absl::Status Failed(const std::string& what) const;
  absl::Status Await(const std::string& what, const std::function<int()>& ask);
  absl::Status Call(const std::string& what, PwNcclComm* comm, int called);
  absl::Status One(const NcclTransfer& transfer, PwNcclComm* comm);
  absl::Status SendAndReceive(const NcclTransfer& transfer, PwNcclComm* comm);

  const Options options_;
  PwDevice* device_ = nullptr;
  int64_t free_bytes_ = 0;
  void* from_ = nullptr;
  void* into_ = nullptr;
  std::map<int, Comm> comms_;  // [members]
};

// GPUs that transfer over NCCL when they are told to, timed by events on the
// devices: threads of one process (nccl_transfers.h) or processes of a job
// (nccl_processes.h).
class NcclParty {
 public:
  virtual ~NcclParty() = default;

  virtual int members() const = 0;
  // That the first `members` are on.
  virtual int nodes(int members) const = 0;
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
