// The messages between ranks of a running pipeline. A message carries the time
// at which its sender had it, so that a receiver can keep a clock that owes
// nothing to when threads happened to run.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Bytes that go from one rank to another and belong to their last holder.
// Between threads the memory itself changes hands, nothing is copied.
struct Payload {
  std::shared_ptr<void> data;
  size_t bytes = 0;
  // Counts the bytes for a rank (memory_pool.h): for the one that works with
  // them, wherever the memory comes from.
  std::shared_ptr<void> charge = nullptr;
  // Memory of the worker's device, which a transport between processes may
  // not read. A message without its data says how many bytes there are.
  bool on_device = false;
};

// Bytes of the host as a payload, and back.
Payload HostPayload(absl::string_view bytes);
std::string TextOf(const Payload& payload);

// A rank of one data-parallel replica of the pipeline.
struct Address {
  int32_t replica = 0;
  int32_t rank = 0;

  friend auto operator<=>(Address, Address) = default;
};

struct RankMessage {
  enum class Kind : uint8_t {
    kToken,      // on a channel: `key` names the pass, 0 for side operations
    kSendReady,  // a sender that waits has come to its transfer; the payload
                 // is with it
    kTakeReady,  // the same of the receiver
    kArrive,     // has come to the meeting `number` of a group, with its part
    kCopied,     // work `number` of a thread of the rank itself has ended
    kCombined,   // so has the collective of meeting `number` of group `index`
    kJoin,       // how to join communicator `index` of the transport
    kDone,  // the sender needs nothing more from anybody; the payload is as in
            // kAnswer
    kAsk,   // the sender has waited for too long: does the receiver wait
            // too? `number` is of the question
    kAnswer,    // it does; the payload says what it has sent and taken so far
    kDeadlock,  // everybody waits, as the sender has found out
    kLost,      // the sender gives up on a rank; the payload names it
    kFailed,    // the sender gives up; the payload says why
  };
  Kind kind = Kind::kToken;
  Address from;
  int32_t index = 0;  // channel, group, side operation
  uint64_t key = 0;
  int64_t number = 0;
  double start_s = 0;  // when a token's transfer started
  double time_s = 0;   // the sender's clock; of a token, its arrival
  Payload payload;
};

// Memory of a rank's device that a transport fills with what others send.
class DeviceMemory {
 public:
  virtual ~DeviceMemory() = default;

  // From any thread. Error: kUnimplemented where there is no device.
  virtual absl::StatusOr<Payload> TakeMemory(size_t) {
    return absl::UnimplementedError("a worker without memory of a device");
  }
  // Makes room for so many inputs of passes, so that nothing is allocated in
  // the middle of a run.
  virtual absl::Status ReserveMemory(int) { return absl::OkStatus(); }
};

struct Program;
struct SideOp;

// Ranks and their collectives as transports name and know them.

// "rank 2", "rank 2 of replica 1".
std::string RankName(const Program& program, Address address);
// All but `self`.
std::vector<Address> OtherRanks(const Program& program, Address self);

// Members of the instance of a group that `replica` takes part in.
std::vector<Address> GroupRanks(const Program& program, int32_t group,
                                int32_t replica);

// Is `op` a collective on fp32 data of a device, the gradients or parameters of
// a stage on more than one rank? Other collectives exchange a few values.
bool IsCombined(const Program& program, const SideOp& op);

}  // namespace pipewright
