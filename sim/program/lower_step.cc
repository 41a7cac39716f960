// The optimizer step: with the norm of all ranks first, or rank by rank and
// checked afterwards (lower_validation.cc).
#include <numeric>

#include "sim/program/lowering.h"
#include "sim/program/program.h"

namespace pipewright {

absl::Status OptimizerStep::Add(const RankEvents& events) {
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    if (!events[rank].empty()) {
      Attach(rank, OrderSize(rank),
             {.kind = OpKind::kWait, .inputs = events[rank]});
    }
  }
  if (never_flushes()) {
    AddWithoutFlush();
    return absl::OkStatus();
  }
  switch (options_.optimizer) {
    case OptimizerMode::kNone:
      break;
    case OptimizerMode::kSynchronised:
      AddSynchronised();
      break;
    case OptimizerMode::kPostValidated:
      return validated_.Add();
  }
  return absl::OkStatus();
}

// The norm of all gradients decides about clipping and infinities, so every
// rank waits for the slowest before it steps.
void OptimizerStep::AddSynchronised() {
  std::vector<int> everybody(schedule_.pp());
  std::iota(everybody.begin(), everybody.end(), 0);
  // After an all-reduce the replicas hold the same gradients.
  const int group = AddGroup(
      shards_step() ? Group::Span::kAll : Group::Span::kRanks, everybody);
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    const int32_t event = AddEvent(rank);
    Attach(rank, OrderSize(rank),
           {.kind = OpKind::kAllReduce,
            .stream = Stream::kCollective,
            .bytes = kStateBytes,
            .group = group,
            .outputs = {event}});
    if (options_.offload.active()) {
      host_.AddStep(rank, event);
    } else {
      Attach(rank, OrderSize(rank),
             {.kind = OpKind::kOptimizer,
              .seconds = options_.costs.optimizer_s,
              .inputs = GatherUpdates(rank, event)});
    }
  }
}

// Behind `event`, chunk by chunk; returns what the step waits for. The stream
// is in order, so that only its first gather waits.
std::vector<int32_t> OptimizerStep::GatherUpdates(int rank, int32_t event) {
  if (options_.update_bytes.empty() || holders() == 1) return {event};
  const int group = AddHolders(Group::Span::kReplicas, {rank});
  std::vector<int32_t> gathered;
  for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
    const int stage = schedule_.placement.StageOf(rank, chunk, 0);
    gathered.push_back(AddEvent(rank));
    Attach(rank, OrderSize(rank),
           {.kind = OpKind::kAllGather,
            .stream = Stream::kCollective,
            .bytes = options_.update_bytes[stage],
            .group = group,
            .chunk = chunk,
            .stage = stage,
            .inputs = chunk == 0 ? std::vector<int32_t>{event}
                                 : std::vector<int32_t>{},
            .outputs = {gathered.back()}});
  }
  return gathered;
}

}  // namespace pipewright
