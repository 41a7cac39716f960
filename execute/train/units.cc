#include "execute/train/units.h"

#include <algorithm>
#include <utility>

#include "sim/base/check.h"
#include "sim/program/program.h"

namespace pipewright {
namespace {

// Most slices of microbatches at a time of which `stage` has run the forward
// and not yet the backward.
int MostUnderWay(const Schedule& schedule, int stage, int replica) {
  const Placement& placement = schedule.placement;
  int now = 0;
  int most = 0;
  for (const Pass pass : schedule.order(placement.RankOf(stage, replica))) {
    if (pass.direction() != replica ||
        pass.chunk() != placement.ChunkOf(stage)) {
      continue;
    }
    if (pass.kind() == PassKind::kForward) most = std::max(most, ++now);
    if (IsBackward(pass.kind())) --now;
  }
  return most;
}

// Few runs need more than that at a time.
constexpr size_t kMostForOutputs = size_t{256} << 20;

// Blocks that a stage passes from part to part.
constexpr int kBetweenParts = 2;

}  // namespace

Units::Units(const Program& program) : placement_(program.schedule->placement) {
  const Schedule& schedule = *program.schedule;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    const RankProgram& rank = program.ranks[placement_.RankOf(stage, 0)];
    int layers = rank.layers.empty() ? 1 : 0;
    for (const LayerPart& part : rank.layers) {
      if (part.chunk == placement_.ChunkOf(stage)) layers = part.layers;
    }
    PW_CHECK(layers > 0);
    first_of_.push_back(count_);
    stage_of_.insert(stage_of_.end(), layers, stage);
    count_ += layers;
  }
}

int Units::Of(const RankProgram& rank, Pass pass, int stage) const {
  return first_of_[stage] +
         (rank.layers.empty() ? 0 : rank.layers[pass.chunk()].layer);
}

std::vector<int> Units::OfRank(int rank, int direction) const {
  std::vector<int> units;
  for (int unit = 0; unit < count_; ++unit) {
    if (RankOf(unit, direction) == rank) units.push_back(unit);
  }
  return units;
}

// An operation that comes with layers knows its stage; its hook knows which.
std::vector<int> Units::OfSideOps(const RankProgram& rank) const {
  std::vector<int> units(rank.side_ops.size(), -1);
  if (rank.layers.empty()) {
    for (size_t index = 0; index < units.size(); ++index) {
      units[index] = rank.side_ops[index].stage;
    }
    return units;
  }
  for (const LaneHook& hook : rank.hooks) {
    for (size_t chunk = 0; chunk < rank.layers.size(); ++chunk) {
      for (int kind = 0; kind < kNumPassKinds; ++kind) {
        const int32_t index = hook.side_ops[Pass::LaneOf(
            static_cast<PassKind>(kind), static_cast<int>(chunk), 0)];
        if (index < 0 || rank.side_ops[index].stage < 0) continue;
        units[index] =
            first_of_[rank.side_ops[index].stage] + rank.layers[chunk].layer;
      }
    }
  }
  return units;
}

std::vector<std::vector<StagePart>> SplitIntoLayers(
    const std::vector<std::vector<StagePart>>& stages) {
  std::vector<std::vector<StagePart>> units;
  for (const std::vector<StagePart>& stage : stages) {
    units.emplace_back();
    bool has_layer = false;
    for (const StagePart& part : stage) {
      const bool is_layer = !TakesTokens(part.part);
      if (is_layer && has_layer) units.emplace_back();
      has_layer |= is_layer;
      units.back().push_back(part);
    }
  }
  return units;
}

StepMicrobatches::StepMicrobatches(const Program& program) {
  for (int replica = 0; replica < program.replicas; ++replica) {
    first_of.push_back(all);
    all += program.OfReplica(replica).schedule->microbatches;
  }
}

int ReservedOutputs(const Units& units, const DpClass& replicas, int rank,
                    size_t boundary) {
  const Schedule& schedule = *replicas.schedule;
  int count = kBetweenParts;
  for (int replica = 0; replica < schedule.directions; ++replica) {
    for (const int unit : units.OfRank(rank, replica)) {
      for (const int next : {unit - 1, unit + 1}) {
        if (next < 0 || next >= units.count()) continue;
        // Layers of one pass follow each other at once.
        if (!replicas.ranks[rank].layers.empty() &&
            units.StageOf(next) == units.StageOf(unit)) {
          continue;
        }
        count += MostUnderWay(schedule, units.StageOf(std::min(unit, next)),
                              replica);
      }
    }
  }
  return std::min(count, static_cast<int>(kMostForOutputs / boundary));
}

double TokensOfStep(const ExecutedModel& model, const Program& program) {
  if (model.lengths.empty()) {
    return static_cast<double>(model.batch) * model.sequence *
           static_cast<double>(StepMicrobatches(program).all);
  }
  double tokens = 0;
  for (size_t index = 0; index < model.lengths.size(); ++index) {
    tokens += static_cast<double>(model.TokensOf(static_cast<int64_t>(index)));
  }
  return tokens;
}

}  // namespace pipewright
