// Do the sends and receives of all ranks fit together, and do they end? A
// question of order alone: no times, no bandwidth, no sizes.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "sim/schedule/schedule.h"
#include "sim/schedule/transfers.h"

namespace pipewright {

// Which ranks a transfer blocks. The rules are those of programs that run real
// schedules:
enum class Semantics {
  // Sends and receives block no rank and find each other by name. A pass waits
  // until its message has been sent.
  kBuffered,
  // A send or receive is a call that returns when both sides have come to it,
  // as MPI_Ssend and MPI_Recv. A rank does one thing after the other.
  kRendezvous,
  // NCCL with asynchronous calls, as the runtimes of the zero-bubble
  // repository (its communication.py) and PyTorch's pipelining drive it:
  //   1. What a rank sends and receives between two passes is one batch
  //      (ncclGroupStart .. ncclGroupEnd). It is posted when the passes before
  //      it have ended.
  //   2. The batches of a rank run one after the other on one stream, beside
  //      the passes. A batch ends when every partner has posted its side.
  //   3. A pass waits for the batch that holds its receive; for no other.
  //   4. Between two ranks messages have no names: the n-th one sent is the
  //      n-th one received.
  // Where the receives stand decides. They are taken from the file, or placed
  // by PostAhead. PyTorch issues the members of a batch one by one; lists with
  // one common order of transfers, such as PostAhead's, run either way, while
  // two ranks that both send first in one batch need the batch.
  kNccl,
  // As kNccl, but a pass waits for all batches in front of it, as Megatron-LM
  // does (p2p_communication.py: batch_isend_irecv, then wait() of each).
  kBatched,
};
absl::string_view SemanticsName(Semantics semantics);

// Each message is sent once and received once, after the pass that makes it and
// before the pass that needs it, and none inside a rank; every stage is
// unsharded, resharded and reduced in turn where the lists say so at all.
// `schedule` must have passed VerifySchedule, and `lists` hold its orders.
// kFailedPrecondition naming file and line, rank and step.
absl::Status CheckPairs(const Schedule& schedule,
                        const std::vector<StepList>& lists);

// What a run of the lists says in steps: each pass, or block, takes one, and a
// transfer none.
struct ProgressFacts {
  int64_t visits = 0;  // how often a rank was looked at
  int64_t steps = 0;   // until the last pass has ended
  // Sends of kNccl whose passes have ended, but which stand on their rank's
  // stream behind a receive that waits for its sender (pytorch/pytorch#165664,
  // #188833). Under kBatched the pass waits, not the send.
  int64_t held_sends = 0;
  struct HeldSend {
    int rank = -1;
    Step send;
    Step receive;
    int64_t steps = 0;  // how long
  };
  HeldSend longest;
};

// Runs the lists, which must have passed CheckPairs. kFailedPrecondition where
// they do not end: what each rank waits for, and the grid with these marked.
// Time O(steps). `facts`, unless null, is set if they end.
absl::Status CheckProgress(const Schedule& schedule,
                           const std::vector<StepList>& lists,
                           Semantics semantics, ProgressFacts* facts = nullptr);

// The lists that `semantics` gives a schedule which says nothing of transfers:
// BlockingSteps for kRendezvous, else PostAhead. Those of kBatched are
// PostedSteps of sim/program/posted_steps.h.
std::vector<StepList> DefaultSteps(const Schedule& schedule,
                                   Semantics semantics);

}  // namespace pipewright
