#include "sim/memory/executor_memory.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "sim/memory/executor_tensors.h"
#include "sim/memory/schedule_memory.h"

namespace pipewright {
namespace {

// A set of weights as passes read them is rounded up to so many bytes.
constexpr int64_t kWeightSetBytes = 256;
// Two sums of a gradient's norm: squares, values that are not finite.
constexpr int64_t kNormSums = 2 * 8;

int64_t TokensOf(const TrainingSpec& training) {
  return training.microbatch_size * training.sequence / training.slices;
}

struct Part {
  BlockKind kind = BlockKind::kDenseLayer;
  int64_t layer = -1;  // index within its stage
  ExecutorPart bytes;
};

// Keeps the highest point that it has been shown.
class HighestMark {
 public:
  // Against what is live when the pass starts. `left`: what the pass has
  // changed of it before; `kept`: what it has brought since then, of `kind`;
  // `buffers`: blocks of a boundary and what the pass itself frees again.
  void See(const PassChange& left, MemoryKind kind, int64_t kept,
           int64_t buffers, const Part& at, absl::string_view doing) {
    const int64_t total = left.activations + left.recomputed + kept + buffers;
    if (any_ && total <= peak_.peak.total()) return;
    any_ = true;
    peak_.peak = MemoryBytes();
    peak_.peak[MemoryKind::kActivations] = left.activations;
    peak_.peak[MemoryKind::kRecomputed] = left.recomputed;
    peak_.peak[kind] += kept;
    peak_.peak[MemoryKind::kBuffers] = buffers;
    peak_.op = absl::StrCat(doing, BlockKindName(at.kind));
    peak_.layer = at.layer;
  }
  const PassMemory& result() const { return peak_; }

 private:
  bool any_ = false;
  PassMemory peak_;
};

// The parts of a unit (execute/train/units.h), a stage or one of its layers,
// and the walks through them. A pass takes memory part by part; what goes from
// part to part is a block of a boundary's size, and so is what comes from
// another unit, which stays until the unit's pass has ended.
class PartWalk {
 public:
  PartWalk(std::vector<Part> parts, int64_t boundary, bool recompute)
      : parts_(std::move(parts)),
        boundary_(boundary),
        recompute_(recompute),
        first_(parts_.front().kind == BlockKind::kEmbedding),
        last_(parts_.back().kind == BlockKind::kHead) {
    for (const Part& part : parts_) {
      source_ += part.bytes.source;
      whole_ += part.bytes.source + part.bytes.saved + part.bytes.inputs;
      weight_part_ += part.bytes.source + part.bytes.inputs + part.bytes.grads;
    }
  }

  int64_t Kept() const {
    if (!recompute_) return whole_;
    return first_ ? source_ : boundary_;
  }
  int64_t WeightPart() const { return weight_part_; }
  // What an R brings beyond what was kept.
  int64_t Recomputed() const { return whole_ - Kept(); }

  // Each walk adds to `left` what it leaves.
  void Forward(PassChange* left, HighestMark* highest) const {
    const int64_t input = first_ ? 0 : boundary_;
    if (recompute_) {
      // Nothing of a part is kept beyond it.
      for (size_t index = 0; index < parts_.size(); ++index) {
        const ExecutorPart& part = parts_[index].bytes;
        highest->See(*left, MemoryKind::kActivations, source_,
                     input + part.saved + part.inputs + Passed(index),
                     parts_[index], "");
      }
    } else {
      Keep(*left, MemoryKind::kActivations, source_, input, "", highest);
    }
    left->activations += Kept();
  }

  void Recompute(PassChange* left, HighestMark* highest) const {
    Keep(*left, MemoryKind::kRecomputed, 0, 0, "", highest);
    left->recomputed += Recomputed();
  }

  // `splits`: B alone, else BW. `after`: an R has run before.
  void Backward(bool splits, bool after, PassChange* left,
                HighestMark* highest) const {
    const int64_t gradient = last_ ? 0 : boundary_;
    int64_t live = 0;
    if (recompute_ && !after) {
      Keep(*left, MemoryKind::kRecomputed, 0, gradient, "recomputed ", highest);
      live = Recomputed();
    }
    const MemoryKind kind =
        recompute_ ? MemoryKind::kRecomputed : MemoryKind::kActivations;
    for (size_t index = parts_.size(); index-- > 0;) {
      const Part& part = parts_[index];
      live += part.bytes.grads;
      const bool from_part = index + 1 < parts_.size();
      const bool to_part = part.kind != BlockKind::kEmbedding;
      highest->See(
          *left, kind, live,
          gradient + (from_part ? boundary_ : 0) + (to_part ? boundary_ : 0),
          part, "");
      live -= part.bytes.saved;
      if (!splits) live -= part.bytes.inputs + part.bytes.grads;
    }
    left->activations += (splits ? weight_part_ : 0) - Kept();
    if (after) left->recomputed -= Recomputed();
  }

  // Takes nothing.
  void Weight(PassChange* left, HighestMark* highest) const {
    highest->See(*left, MemoryKind::kActivations, 0, 0, parts_.back(), "");
    left->activations -= weight_part_;
  }

 private:
  // Blocks between the part, the one before and the one behind.
  int64_t Passed(size_t index) const {
    const bool from_part = index > 0;
    const bool to_part = parts_[index].kind != BlockKind::kHead;
    return (from_part ? boundary_ : 0) + (to_part ? boundary_ : 0);
  }

  // A forward that keeps everything, with `kept` and `buffers` there before.
  void Keep(const PassChange& left, MemoryKind kind, int64_t kept,
            int64_t buffers, absl::string_view doing,
            HighestMark* highest) const {
    for (size_t index = 0; index < parts_.size(); ++index) {
      kept += parts_[index].bytes.saved + parts_[index].bytes.inputs;
      highest->See(left, kind, kept, buffers + Passed(index), parts_[index],
                   doing);
    }
  }

  const std::vector<Part> parts_;
  const int64_t boundary_;
  const bool recompute_;
  const bool first_;
  const bool last_;
  int64_t source_ = 0;
  int64_t whole_ = 0;
  int64_t weight_part_ = 0;
};

// The units of a stage: itself, or a layer each. As SplitIntoLayers has them:
// embedding and head belong to the layer next to them.
std::vector<std::vector<Part>> UnitsOf(std::vector<Part> parts, bool by_layer) {
  if (!by_layer) return {std::move(parts)};
  std::vector<std::vector<Part>> units(1);
  bool has_layer = false;
  for (Part& part : parts) {
    const bool is_layer = part.layer >= 0;
    if (is_layer && has_layer) units.emplace_back();
    has_layer |= is_layer;
    units.back().push_back(std::move(part));
  }
  return units;
}

// Passes of a stage: those of its units, one after the other.
void WalkUnits(const std::vector<PartWalk>& units, StageMemory* stage) {
  const auto up = [&units](const auto& walk) {
    HighestMark highest;
    PassChange left;
    for (const PartWalk& unit : units) walk(unit, &left, &highest);
    return highest.result();
  };
  const auto down = [&units](const auto& walk) {
    HighestMark highest;
    PassChange left;
    for (auto unit = units.rbegin(); unit != units.rend(); ++unit) {
      walk(*unit, &left, &highest);
    }
    return highest.result();
  };
  const auto backward = [&down](bool splits, bool after) {
    return down(
        [&](const PartWalk& unit, PassChange* left, HighestMark* highest) {
          unit.Backward(splits, after, left, highest);
        });
  };
  for (const PartWalk& unit : units) {
    stage->kept += unit.Kept();
    stage->weight_part += unit.WeightPart();
    stage->recomputed += unit.Recomputed();
  }
  stage->away = stage->kept;
  stage->forward =
      up([](const PartWalk& unit, PassChange* left, HighestMark* highest) {
        unit.Forward(left, highest);
      });
  stage->recompute =
      up([](const PartWalk& unit, PassChange* left, HighestMark* highest) {
        unit.Recompute(left, highest);
      });
  stage->backward_input = backward(true, false);
  stage->backward_full = backward(false, false);
  stage->backward_input_after = backward(true, true);
  stage->backward_full_after = backward(false, true);
  stage->backward_weight =
      down([](const PartWalk& unit, PassChange* left, HighestMark* highest) {
        unit.Weight(left, highest);
      });
}

// Passes read the master weights themselves where these are of their type and
// nobody keeps older ones.
bool ReadsMaster(const ExecutorSpec& spec) {
  return spec.type_bytes == kFloat && !spec.fp8 && !spec.keeps_versions &&
         !spec.host_optimizer;
}

// What so many elements take of weights, gradients and optimizer states.
MemoryBytes BytesOf(int64_t parameters, const ExecutorSpec& spec) {
  const int64_t copies = spec.keeps_last_step ? 2 : 1;
  MemoryBytes bytes;
  bytes[MemoryKind::kWeights] = spec.type_bytes * parameters;
  bytes[MemoryKind::kGradients] = kFloat * parameters;
  bytes[MemoryKind::kMaster] = copies * kFloat * parameters;
  bytes[MemoryKind::kMoments] = copies * 2 * kFloat * parameters;
  return bytes;
}

StageMemory StageOf(const ModelSpec& model, const TrainingSpec& training,
                    const ExecutorSpec& spec,
                    const std::vector<StageBlock>& blocks) {
  StageMemory stage;
  std::vector<Part> parts;
  int64_t layers = 0;
  int64_t parameters = 0;
  int64_t quantized = 0;
  int64_t workspace = 0;
  for (const StageBlock& block : blocks) {
    const bool is_layer =
        block.kind != BlockKind::kEmbedding && block.kind != BlockKind::kHead;
    const ExecutorPart bytes =
        ExecutorPartOf(ExecutorTensors(model, training, spec, block.kind));
    for (int64_t copy = 0; copy < block.count; ++copy) {
      parts.push_back({block.kind, is_layer ? layers++ : -1, bytes});
    }
    parameters += block.count * bytes.parameters;
    quantized += block.count * bytes.quantized;
    stage.per_microbatch += block.count * bytes.microbatch;
    workspace = std::max(workspace, bytes.workspace);
    stage.has_table |= block.kind == BlockKind::kEmbedding;
    if (spec.ties_table && block.kind == BlockKind::kHead) {
      stage.tied_table = BytesOf(bytes.table, spec);
    }
  }
  stage.fixed = BytesOf(parameters, spec);
  stage.boundary = spec.type_bytes * TokensOf(training) * model.hidden;
  std::vector<PartWalk> units;
  // One set of those that passes read, of each unit.
  int64_t weights = quantized;
  for (std::vector<Part>& unit : UnitsOf(std::move(parts), spec.by_layer)) {
    int64_t own = 0;
    for (const Part& part : unit) own += part.bytes.parameters;
    weights += (spec.type_bytes * own + kWeightSetBytes - 1) / kWeightSetBytes *
               kWeightSetBytes;
    if (!unit.empty()) {
      units.emplace_back(std::move(unit), stage.boundary, spec.recompute);
    }
  }
  stage.fixed[MemoryKind::kWeights] = weights;
  // Targets and losses of a pass's tokens, and sums of each unit.
  stage.fixed[MemoryKind::kWorkspace] =
      workspace + TokensOf(training) * (kIndex + kFloat) +
      kNormSums * std::max<int64_t>(1, std::ssize(units));
  if (!units.empty()) WalkUnits(units, &stage);
  return stage;
}

// But for a table, nothing is shared between the stages of a rank.
MemoryBytes ExecutorFixed(const RankStages& of, const ExecutorSpec& spec) {
  MemoryBytes fixed;
  for (int replica = 0; replica < of.schedule.directions; ++replica) {
    bool has_table = false;
    MemoryBytes tied;
    for (int chunk = 0; chunk < of.schedule.vpp(); ++chunk) {
      const int number = of.schedule.placement.StageOf(of.rank, chunk, replica);
      const StageMemory& stage = *of.stages[number];
      fixed += stage.fixed;
      has_table |= stage.has_table;
      tied += stage.tied_table;
    }
    for (int kind = 0; has_table && kind < kNumMemoryKinds; ++kind) {
      fixed.of[kind] -= tied.of[kind];
    }
  }
  fixed[MemoryKind::kWeights] *= of.versions - (ReadsMaster(spec) ? 1 : 0);
  return fixed;
}

}  // namespace

OffloadedStates ExecutorHostStates(const HostSubgroupCounts& of,
                                   const ExecutorSpec& spec) {
  // Master weight, both moments, and on the host the gradient.
  constexpr int64_t kStates = 3 * kFloat;
  constexpr int64_t kOnHost = kStates + kFloat;
  const auto begin = [&](int64_t subgroup) {
    return of.parameters * subgroup / of.subgroups;
  };
  const int64_t on_host = begin(of.subgroups - of.residents);
  OffloadedStates states;
  states.resident = static_cast<double>(of.parameters - on_host) /
                    static_cast<double>(std::max<int64_t>(1, of.held));
  states.host = kOnHost * on_host;
  int64_t visitor = 0;
  for (const int64_t subgroup : of.visitors) {
    visitor = std::max(visitor, begin(subgroup + 1) - begin(subgroup));
  }
  states.device = kStates * visitor;
  if (of.early && spec.type_bytes != kFloat) states.device += kFloat * on_host;
  return states;
}

std::shared_ptr<const MemoryFramework> ExecutorMemory(
    const ExecutorSpec& spec) {
  return std::make_shared<const MemoryFramework>(MemoryFramework{
      .name = "pipewright",
      .source = "kernels/layer.h, execute/train/stage.h",
      .stage =
          [spec](const ModelSpec& model, const TrainingSpec& training,
                 const std::vector<StageBlock>& blocks, int) {
            ExecutorSpec own = spec;
            own.recompute |= training.recompute == Recompute::kFull;
            return StageOf(model, training, own, blocks);
          },
      .fixed = [spec](const RankStages& of) { return ExecutorFixed(of, spec); },
      .hands_over = true,
      .has_context = spec.gpu,
      .pairs_in_turn = true});
}

}  // namespace pipewright
