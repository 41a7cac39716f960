// The optimizer step: with the norm of all ranks first, or rank by rank and
// checked afterwards (lower_validation.cc).
#include <numeric>

#include "sim/program/lowering.h"
#include "sim/program/program.h"

namespace pipewright {

absl::Status Lowering::AddOptimizer() {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    if (!synced_[rank].empty()) {
      Attach(rank, OrderSize(rank),
             {.kind = OpKind::kWait, .inputs = synced_[rank]});
    }
  }
  if (never_flushes()) {
    AddStepsWithoutFlush();
    return absl::OkStatus();
  }
  switch (options_.optimizer) {
    case OptimizerMode::kNone:
      break;
    case OptimizerMode::kSynchronised:
      AddSynchronisedStep();
      break;
    case OptimizerMode::kPostValidated:
      return AddPostValidatedStep();
  }
  return absl::OkStatus();
}

// The norm of all gradients decides about clipping and infinities, so every
// rank waits for the slowest before it steps.
void Lowering::AddSynchronisedStep() {
  std::vector<int> everybody(schedule_.pp());
  std::iota(everybody.begin(), everybody.end(), 0);
  // After an all-reduce the replicas hold the same gradients.
  const int group = AddGroup(
      shards_step() ? Group::Span::kAll : Group::Span::kRanks, everybody);
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    const int32_t event = AddChannel(ChannelKind::kEvent, rank, rank, 0);
    Attach(rank, OrderSize(rank),
           {.kind = OpKind::kAllReduce,
            .stream = Stream::kCollective,
            .bytes = kStateBytes,
            .group = group,
            .outputs = {event}});
    if (options_.offload.placement == OptimizerPlacement::kSuperOffload) {
      AddCheckedStep(rank, event);
    } else if (options_.offload.active()) {
      AddHostStep(rank, event);
    } else {
      Attach(rank, OrderSize(rank),
             {.kind = OpKind::kOptimizer,
              .seconds = options_.costs.optimizer_s,
              .inputs = {event}});
    }
  }
}

}  // namespace pipewright
