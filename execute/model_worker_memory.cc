// What a worker's passes hold: reserved before the run, recorded in it.
#include <algorithm>
#include <map>

#include "execute/model_worker.h"
#include "sim/base/status.h"

namespace pipewright {

// The first pass that needs a block would be timed with its making. Where
// activations go to the host, how much is held hangs on when, and nothing is
// reserved.
absl::Status ModelWorker::ReserveActivations() {
  std::map<size_t, std::pair<int, int>> held;  // [bytes]: now, at most
  const auto change = [&held](size_t bytes, int by) {
    auto& [now, most] = held[bytes];
    now += by;
    most = std::max(most, now);
  };
  const Schedule& schedule = *program_.schedule;
  bool own_recompute = false;
  for (const Pass pass : schedule.order(self_.rank)) {
    own_recompute |= pass.kind() == PassKind::kRecompute;
    if (pass.kind() == PassKind::kOffload || pass.kind() == PassKind::kLoad) {
      return absl::OkStatus();
    }
  }
  for (const Pass pass : schedule.order(self_.rank)) {
    if (pass.kind() == PassKind::kSync) continue;
    const int index =
        schedule.placement.StageOf(self_.rank, pass.chunk(), pass.replica());
    const Stage& stage = StageOf(index, pass.replica());
    const bool backward = pass.kind() == PassKind::kBackwardInput ||
                          pass.kind() == PassKind::kBackwardFull;
    if (model_.recompute && backward && !own_recompute) {
      for (const auto& [bytes, by] :
           stage.BlocksOf(PassKind::kRecompute, pass.slice())) {
        change(bytes, by);
      }
    }
    for (const auto& [bytes, by] : stage.BlocksOf(pass.kind(), pass.slice())) {
      change(bytes, by);
    }
  }
  arena_->Settle();
  for (const auto& [bytes, counts] : held) {
    PW_RETURN_IF_ERROR(arena_->Reserve(bytes, counts.second));
  }
  return absl::OkStatus();
}

// What the stages hold, and what the block is about to: a pair allocates at its
// common start. Whole numbers, so that no error adds up.
void ModelWorker::BeginBlock(const Pass* block, int parts) {
  record_.peak_bytes = std::max(record_.peak_bytes, arena_->ResetPeak());
  Stage::Held held;
  for (const auto& [key, stage] : stages_) {
    const Stage::Held each = stage->held();
    held.whole += each.whole;
    held.weight_part += each.weight_part;
  }
  for (int part = 0; part < parts; ++part) {
    held.whole += block[part].kind() == PassKind::kForward ? 1 : 0;
  }
  const Schedule& schedule = *program_.schedule;
  const double slices = static_cast<double>(schedule.vpp()) * schedule.slices;
  record_.peak_activations = std::max(
      record_.peak_activations,
      (held.whole + options_.held_until_weight * held.weight_part) / slices);
}

void ModelWorker::EndBlock(const Pass*, int parts) {
  const size_t peak = arena_->ResetPeak();
  record_.peak_bytes = std::max(record_.peak_bytes, peak);
  // A pair is one operation: its first part stands at the pair's highest point.
  for (int part = 0; part < parts; ++part) {
    const size_t after = part + 1 < parts ? peak : arena_->used();
    record_.memory.push_back(
        {static_cast<double>(peak), static_cast<double>(after)});
  }
}

}  // namespace pipewright
