// How the transfers of a Program hold their ranks up.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace pipewright {

// When a transfer between passes starts and which ranks it blocks.
enum class WaitRule : uint8_t {
  // As soon as the producing pass has ended. It does not block either rank.
  kBuffered,
  // When the producing pass has ended and the consumer's rank has come to the
  // consuming pass. It blocks both ranks until it has ended. A rank that has
  // both to send and to receive sends first.
  kRendezvous,
  // As kRendezvous, but what a rank sends after one pass and receives before
  // the next one is posted together and awaited together, unless an attached
  // side operation or a copy is issued between them.
  kBatched,
  // Ranks walk through the time steps of the schedule (time_steps.h). What
  // passes of one step make is sent and received at its end, and a rank begins
  // the next step when all of its own has ended: PyTorch's
  // PipelineScheduleMulti, torch/distributed/pipelining/schedules.py,
  // _step_microbatches (pytorch/pytorch 1fd7abc2f521).
  kStepped,
};
absl::string_view WaitRuleName(WaitRule rule);

}  // namespace pipewright
