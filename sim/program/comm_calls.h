// Calls on communicators, such as NCCL's, and the proof that they end: static,
// from the order alone.
//
// A call is a kernel that waits on its device until all other members of its
// communicator have theirs there. The rules:
//
// 1. The n-th calls of all members of a communicator belong together: the same
//    operation, or a send and the receive of the same message, of one size.
// 2. An issuer, a rank's thread, issues its calls in order, each when the
//    messages that its passes have needed so far have come.
// 3. A communicator has a stream, in order. Streams are dealt out to the
//    device's hardware queues in turn. A queue goes on when the kernel at its
//    head is resident; one that waits for the kernel before it on its stream
//    holds up what is behind it.
// 4. If fewer kernels can be resident than the rank has communicators, they
//    become so in the order of issue. (With first come, first served no other
//    order of them waits for more.)
//
// A pass's wait for a collective is not among them: only messages are needed.
// So a rank with a queue and a resident kernel for each of its communicators
// never makes one wait for another, whatever the order in which it issues.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/schedule/transfers.h"

namespace pipewright {

struct CallPlace {
  int issuer = -1;
  int call = -1;
  bool operator==(const CallPlace&) const = default;
};

struct CommCall {
  int comm = 0;
  bool sends = false;     // on a link; else it receives
  int64_t key = 0;        // the same for all members
  std::string what = {};  // "activation 3", "all-reduce"
  double bytes = 0;
  std::vector<CallPlace> needs = {};  // receives that have to end first
};

struct CommCalls {
  struct Comm {
    std::vector<int> members;  // issuers; of a link sender and receiver
    bool link = true;
  };
  std::vector<Comm> comms;
  std::vector<std::string> issuers;          // names, of messages
  std::vector<std::vector<CommCall>> calls;  // [issuer] in its order
  int most_comms = 0;                        // on one device
};

// What a device has room for. CUDA: at most 32 queues, 8 unless
// CUDA_DEVICE_MAX_CONNECTIONS says otherwise; 128 resident grids from compute
// capability 7.5 on (CUDA C++ Programming Guide, technical specifications).
struct DeviceRoom {
  int queues = 32;
  int kernels = 128;
  bool HoldsAll(const CommCalls& calls) const {
    return calls.most_comms <= queues && calls.most_comms <= kernels;
  }
};

// kFailedPrecondition: calls that do not belong together, or the circle of
// calls that wait for each other. Time O(calls * communicators).
absl::Status ProveCalls(const CommCalls& calls, const DeviceRoom& room);

// With a communicator for each ordered pair of ranks that has messages.
CommCalls CallsOf(const Schedule& schedule, const std::vector<StepList>& lists);

}  // namespace pipewright
