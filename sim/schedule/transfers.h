// A rank's list, which also says what its order leaves open: where each send
// and receive stands. A schedule has none of these; a PyTorch file may spell
// them out, and otherwise a rule places them. No times, no sizes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/schedule/schedule.h"

namespace pipewright {

enum class StepKind : uint8_t {
  kPass,
  kSend,
  kReceive,
  // Steps of a sharded stage (FSDP), as PyTorch's files have them: parameters
  // gathered, freed, gradients scaled and reduced.
  kUnshard,
  kReshard,
  kReduceGradient,
};

struct Step {
  StepKind kind = StepKind::kPass;
  // kPass: the pass itself, joint with the next step where it says so. kSend:
  // the pass whose result goes, kReceive: the pass of this rank that needs it;
  // kForward or kBackwardInput, which stands for BW too. Else any pass of the
  // chunk that is meant.
  Pass pass;

  friend bool operator==(const Step& a, const Step& b) {
    return a.kind == b.kind && a.pass == b.pass;
  }
};
using StepList = std::vector<Step>;

// The message that a send or receive on `rank` is about.
struct Message {
  int peer = -1;  // the other rank; -1: there is no such neighbour stage
  // One number a (activation or gradient, direction, receiving stage,
  // microbatch, slice), below MessageCount; the same for both sides.
  int64_t index = -1;
};
Message MessageOf(const Schedule& schedule, int rank, const Step& step);
int64_t MessageCount(const Schedule& schedule);

// Does `pass` on `rank` take its input from, or send its result to, another
// rank? Such a step, without the pass of the other side.
bool NeedsReceive(const Schedule& schedule, int rank, Pass pass);
bool NeedsSend(const Schedule& schedule, int rank, Pass pass);

// Sends and receives as `kSend` and `kReceive` hold them.
Step SendOf(Pass pass);
Step ReceiveOf(Pass pass);

// The orders alone.
std::vector<StepList> PassSteps(const Schedule& schedule);

// Every receive directly before the pass that needs it, every send directly
// after the pass that makes it.
std::vector<StepList> BlockingSteps(const Schedule& schedule);

// Receives posted ahead: `lists` are swept by rank, one entry a rank and sweep;
// a send comes after its pass, and its receive goes to the end of the peer's
// list at the same moment. All lists thus agree with one common order of the
// transfers. So PyTorch 2.14.1 lowers a compute_only schedule. `lists` have no
// transfers yet; `schedule` must have passed VerifySchedule.
// Time O(entries * log(ranks)). `visits`, unless null, gets how often a rank
// was looked at.
std::vector<StepList> PostAhead(const Schedule& schedule,
                                const std::vector<StepList>& lists,
                                int64_t* visits = nullptr);

// "SEND_F3.1", "RECV_B0", "UNSHARD.1", or the pass.
std::string StepToString(const Schedule& schedule, const Step& step);

}  // namespace pipewright
