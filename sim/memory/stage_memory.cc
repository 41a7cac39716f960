#include "sim/memory/stage_memory.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "sim/model/ops.h"
#include "sim/model/precision.h"
#include "sim/model/weight_matrices.h"

namespace pipewright {
namespace {

// What the op keeps until B; sets what has to be made again.
void Keep(Recompute recompute, double checkpoint, WalkOp* at) {
  const ModelOp& op = *at->op;
  at->linear = at->part * op.saved_until_weight;
  at->saved = at->linear + at->part * op.saved_until_backward;
  at->kept = at->saved;
  if (recompute == Recompute::kFull) {
    at->kept = checkpoint;
    at->linear_again = std::min(at->linear, at->saved - at->kept);
  } else if (recompute != Recompute::kNone) {
    const Rerun& rerun = op.RerunOf(recompute);
    at->kept -= at->part * (rerun.backward + rerun.weight);
    at->linear_again = at->part * rerun.weight;
  }
  at->again = at->saved - at->kept;
  at->runs_again = recompute == Recompute::kFull || at->again > 0;
}

// Are layers gathered and reduced one by one?
bool SharesLayers(const TrainingSpec& training) {
  return training.sharded.shard_group > 0 && training.zero >= 3;
}

bool IsFsdp2(const TrainingSpec& training) {
  return SharesLayers(training) && training.sharded.is_fsdp2;
}

// Static bytes of one op, sharded.
MemoryBytes FixedBytes(BlockKind block, const ModelOp& op,
                       const TrainingSpec& training) {
  const double shards =
      op.is_expert ? training.expert_shards() : training.shards();
  const auto share_of_all = [&](double all, int from_zero) {
    return std::llround(training.zero >= from_zero ? all / shards : all);
  };
  const auto share = [&](double bytes, int from_zero) {
    return share_of_all(bytes * op.parameters, from_zero);
  };
  MemoryBytes fixed;
  // Under ZeRO 3 weights are gathered, and cast, for each pass.
  const bool keeps_narrow = training.keeps_narrow_weights && IsLinear(op) &&
                            !op.is_wide && IsNarrow(training.precision) &&
                            (training.zero < 3 || shards == 1);
  const bool narrow_alone = IsNarrowWeight(training, op);
  fixed[MemoryKind::kWeights] = share(
      (narrow_alone ? 0 : training.weight_bytes) +
          (narrow_alone || keeps_narrow ? NarrowWeightBytes(training) : 0),
      3);
  if (op.is_frozen) return fixed;
  // If layers are sharded (FSDP2, odc), a shard is of the master weights alone
  // and is cast when it is gathered. Without any the weights are what is cast.
  const bool masters = SharesLayers(training) && training.master_bytes > 0;
  if (masters && shards > 1) fixed[MemoryKind::kWeights] = 0;
  fixed[MemoryKind::kGradients] = share(training.gradient_bytes, 2);
  fixed[MemoryKind::kMaster] = share(training.master_bytes, 1);
  fixed[MemoryKind::kMoments] =
      share_of_all(StateBytes(training, block, op), 1);
  return fixed;
}

MemoryBytes Scaled(MemoryBytes bytes, double factor) {
  for (int64_t& value : bytes.of) {
    value = std::llround(static_cast<double>(value) * factor);
  }
  return bytes;
}

void AddFixed(const std::vector<ModelOp>& ops, const TrainingSpec& training,
              const StageBlock& block, StageMemory* stage) {
  const double copies = static_cast<double>(block.count) * block.part;
  double parameters = 0;
  double trained = 0;
  for (const ModelOp& op : ops) {
    const MemoryBytes fixed =
        Scaled(FixedBytes(block.kind, op, training), copies);
    stage->fixed += fixed;
    if (op.is_tied) stage->tied_table += fixed;
    parameters += op.parameters;
    if (!op.is_frozen) trained += op.parameters;
    if (op.kind == OpClass::kGroupedGemm) stage->has_grouped_layers = true;
    if (!op.has_weight_pass || op.parameters == 0) continue;
    const std::pair<int64_t, int64_t> shape = {std::llround(op.n * block.part),
                                               std::llround(op.k)};
    if (std::find(stage->weight_shapes.begin(), stage->weight_shapes.end(),
                  shape) == stage->weight_shapes.end()) {
      stage->weight_shapes.push_back(shape);
    }
  }
  if (block.kind == BlockKind::kEmbedding) stage->has_table = true;
  const double whole = WholeWeightBytes(training);
  stage->gathered_layers += std::llround(whole * parameters * copies);
  if (IsFsdp2(training) && block.kind == BlockKind::kHead) {
    stage->gathered_head += std::llround(whole * parameters * copies);
  } else {
    stage->gathered_layer = std::max<int64_t>(
        stage->gathered_layer, std::llround(whole * parameters * block.part));
  }
  // In its own type and in the one that is reduced (PyTorch,
  // _fsdp_collectives.py, foreach_reduce).
  const double gradient =
      IsFsdp2(training) ? whole + training.gradient_bytes : whole;
  stage->layer_gradient = std::max<int64_t>(
      stage->layer_gradient, std::llround(gradient * trained * block.part));
  stage->whole_gradients +=
      std::llround(training.gradient_bytes * trained * copies);
}

// Matrices that are whole on one device each leave more to some than to others,
// and empty places in the buffers of weights and gradients.
void AddWholeMatrices(const std::vector<double>& elements, int shards,
                      const TrainingSpec& training, StageMemory* stage) {
  // Stages that have a table because the vocabulary is spread, or for MTP, are
  // taken for the first one. [known error]
  const MatrixOwners owners = OwnersOf(
      elements, shards, HasOneBucket(training, stage->has_table ? 0 : 1));
  const double all = std::accumulate(elements.begin(), elements.end(), 0.0);
  const double more = owners.most() - all / shards;
  const double empty = owners.padded - all;
  MemoryBytes& fixed = stage->fixed;
  fixed[MemoryKind::kWeights] += std::llround(training.weight_bytes * empty);
  fixed[MemoryKind::kGradients] +=
      std::llround(training.gradient_bytes * empty);
  fixed[MemoryKind::kMaster] += std::llround(training.master_bytes * more);
  fixed[MemoryKind::kMoments] +=
      std::llround(training.optimizer.momentum_bytes * more);
}

// A layer's first op keeps the layer's input, all of which full recomputation
// keeps.
void AddBlock(const std::vector<ModelOp>& ops, const StageBlock& block,
              double boundary, Recompute recompute,
              const TrainingSpec& training, std::vector<WalkOp>* walk) {
  const OffloadedTensors& offloaded = training.offloaded;
  const int first_block = walk->empty() ? 0 : walk->back().block + 1;
  int64_t first_layer = 0;
  for (const WalkOp& at : *walk) {
    first_layer = std::max(first_layer, at.layer + 1);
  }
  for (int64_t copy = 0; copy < block.count; ++copy) {
    bool first = true;
    bool behind = false;  // attention
    const size_t begin = walk->size();
    for (const ModelOp& op : ops) {
      behind |= op.name == kFeedForwardNorm;
      WalkOp at;
      at.op = &op;
      at.part = block.part;
      at.block = first_block + static_cast<int>(copy);
      if (IsLayer(block.kind)) at.layer = first_layer + copy;
      const bool again = IsLayer(block.kind) &&
                         training.RecomputedLayers(
                             static_cast<double>(first_layer + copy), 1) > 0;
      const Recompute here = again ? recompute : Recompute::kNone;
      at.remade_at = walk->size();
      if (here == Recompute::kFull) {
        at.remade_at = begin + ops.size() - 1;
      } else if (here == Recompute::kSelective && op.remade_at >= 0) {
        at.remade_at = begin + op.remade_at;
      }
      at.stream = IsLayer(block.kind) ? boundary : 0;
      const double input =
          std::min(boundary, op.saved_until_backward + op.saved_until_weight);
      Keep(here, first ? input : 0, &at);
      at.offloaded = first || !IsLayer(block.kind) ? offloaded.input
                     : behind                      ? offloaded.mlp
                                                   : offloaded.attention;
      first = false;
      walk->push_back(std::move(at));
    }
    for (size_t index = begin; index < walk->size(); ++index) {
      const size_t remade_at = (*walk)[index].remade_at;
      if (remade_at > index) (*walk)[remade_at].remakes = true;
    }
  }
}

}  // namespace

absl::string_view MemoryKindName(MemoryKind kind) {
  switch (kind) {
    case MemoryKind::kWeights:
      return "weights";
    case MemoryKind::kGradients:
      return "gradients";
    case MemoryKind::kMaster:
      return "master weights";
    case MemoryKind::kMoments:
      return "moments";
    case MemoryKind::kPlaceholders:
      return "gradient placeholders";
    case MemoryKind::kActivations:
      return "activations";
    case MemoryKind::kRecomputed:
      return "recomputed";
    case MemoryKind::kWorkspace:
      return "workspace";
    case MemoryKind::kBuffers:
      return "buffers";
  }
  return "";
}

MemoryBytes& MemoryBytes::operator+=(const MemoryBytes& other) {
  for (int kind = 0; kind < kNumMemoryKinds; ++kind) {
    of[kind] += other.of[kind];
  }
  return *this;
}

int64_t MemoryBytes::total() const {
  return std::accumulate(of.begin(), of.end(), int64_t{0});
}

double WholeWeightBytes(const TrainingSpec& training) {
  if (!SharesLayers(training)) return training.weight_bytes;
  return training.sharded.one_sided ? 2 : training.sharded.gather_bytes;
}

StageMemory BuildStageMemory(const ModelSpec& model,
                             const TrainingSpec& training,
                             const std::vector<StageBlock>& blocks, int chunk) {
  const bool by_chunk = !training.recompute_chunks.empty();
  const Recompute recompute = by_chunk && !training.recompute_chunks[chunk]
                                  ? Recompute::kNone
                                  : training.recompute;
  StageMemory stage;
  const double boundary = BoundaryBytes(model, training);
  stage.boundary = std::llround(boundary);
  if (training.stage_buffers != StageBuffers::kNone) {
    const bool has_head =
        !blocks.empty() && blocks.back().kind == BlockKind::kHead;
    if (has_head) {
      // 16 bit. [numerics, bytes]
      constexpr double kLogit = 2;
      stage.logits = std::llround(kLogit * training.tokens() *
                                  static_cast<double>(model.vocabulary) *
                                  blocks.back().part / training.tp);
    } else {
      // What it gives to the next stage stays until its backward.
      stage.per_microbatch = stage.boundary;
    }
  }
  std::vector<double> matrices[2];       // elements: dense, experts'
  std::deque<std::vector<ModelOp>> ops;  // keeps addresses
  std::vector<WalkOp> walk_ops;
  for (const StageBlock& block : blocks) {
    // Layers of one run are alike but for those that are frozen.
    for (StageBlock rest = block; rest.count > 0;) {
      StageBlock run = rest;
      const int64_t frozen = model.frozen_layers - rest.first_layer;
      if (frozen > 0 && frozen < rest.count) run.count = frozen;
      rest.first_layer += run.count;
      rest.count -= run.count;
      ops.push_back(BlockOps(model, training, run.kind, run.first_layer));
      AddFixed(ops.back(), training, run, &stage);
      for (int64_t at = 0; IsLayerWise(training) && at < run.count; ++at) {
        for (const ModelOp& op : ops.back()) {
          for (const auto& each : MatricesOf(training, run.kind, op)) {
            matrices[each.is_expert ? 1 : 0].push_back(each.elements());
          }
        }
      }
      AddBlock(ops.back(), run, boundary, recompute, training, &walk_ops);
    }
  }
  for (const bool of_experts : {false, true}) {
    const int shards =
        of_experts ? training.expert_shards() : training.shards();
    const std::vector<double>& own = matrices[of_experts ? 1 : 0];
    if (shards > 1 && !own.empty()) {
      AddWholeMatrices(own, shards, training, &stage);
    }
  }
  const StageWalk walk(std::move(walk_ops));
  stage.kept = std::llround(walk.Kept());
  stage.away = std::llround(walk.Offloaded());
  stage.weight_part = std::llround(walk.WeightPart());
  stage.recomputed = std::llround(walk.Recomputed());
  stage.forward = walk.Forward();
  stage.backward_input = walk.Backward(true, false);
  stage.backward_full = walk.Backward(false, false);
  stage.backward_weight = walk.Weight();
  stage.recompute = walk.Recompute();
  stage.backward_input_after = walk.Backward(true, true);
  stage.backward_full_after = walk.Backward(false, true);
  return stage;
}

namespace {

int64_t Whole(double bytes) { return std::llround(bytes); }

// Keeps the highest point that it has been shown.
class Highest {
 public:
  void See(double activations, double recomputed, double workspace,
           const WalkOp& at, absl::string_view doing = "") {
    const double total = activations + recomputed + workspace;
    if (any_ && total <= total_) return;
    any_ = true;
    total_ = total;
    peak_.peak[MemoryKind::kActivations] = Whole(activations);
    peak_.peak[MemoryKind::kRecomputed] = Whole(recomputed);
    peak_.peak[MemoryKind::kWorkspace] = Whole(workspace);
    peak_.op = absl::StrCat(doing, at.op->name);
    peak_.layer = at.layer;
  }
  PassMemory Result() const { return peak_; }

 private:
  bool any_ = false;
  double total_ = 0;
  PassMemory peak_;
};

// Gradients and gathered tensors of the backward.
double BackwardWorkspace(const WalkOp& at, bool splits) {
  const ModelOp& op = *at.op;
  const double bytes = splits ? op.backward_workspace
                              : op.backward_workspace + op.weight_workspace -
                                    op.shared_workspace;
  return at.part * bytes + at.stream;
}

// Inputs of linear layers belong to the op that makes them, but the layer is
// done with them before the backward comes to that op. Attention alone needs
// its output itself.
double FreedByReaders(const WalkOp& at) {
  return at.op->kind == OpClass::kAttention ? 0 : at.linear;
}

// How much of that is made again, not kept.
double MadeAgain(const WalkOp& at) {
  return std::min(FreedByReaders(at), at.linear_again);
}

// What B leaves to W.
double LeftToWeight(const WalkOp& at) {
  return at.op->has_weight_pass || at.linear > 0
             ? at.linear + at.part * at.op->held_for_weight
             : 0;
}

}  // namespace

PassMemory StageWalk::Forward() const {
  Highest highest;
  double kept = 0;
  double dropped_before = 0;  // the input of an op whose output is not kept
  for (const WalkOp& at : ops_) {
    kept += at.kept;
    highest.See(kept, 0,
                at.again + dropped_before + at.part * at.op->forward_workspace,
                at);
    dropped_before = at.again;
  }
  return highest.Result();
}

PassMemory StageWalk::Recompute() const {
  Highest highest;
  double recomputed = 0;
  for (const WalkOp& at : ops_) {
    recomputed += at.again;
    const double workspace =
        at.runs_again ? at.part * at.op->forward_workspace : 0;
    highest.See(0, recomputed, workspace, at);
  }
  return highest.Result();
}

PassMemory StageWalk::Backward(bool splits, bool after) const {
  Highest highest;
  double activations = 0;
  double recomputed = 0;
  std::vector<bool> made(ops_.size(), after);
  const auto make = [&](size_t index) {
    if (made[index]) return;
    made[index] = true;
    recomputed += ops_[index].again;
  };
  for (size_t next = ops_.size(); next-- > 0;) {
    const WalkOp& at = ops_[next];
    if (at.remakes) {
      // The forward of a layer or module once more, keeping everything.
      size_t first = next;
      while (first > 0 && ops_[first - 1].block == at.block) --first;
      for (size_t index = first; index <= next; ++index) {
        if (made[index] || ops_[index].remade_at != next) continue;
        make(index);
        highest.See(
            activations, recomputed,
            at.stream + ops_[index].part * ops_[index].op->forward_workspace,
            ops_[index], "recomputed ");
      }
    }
    make(next);
    // Its input, if the op before it makes that again by itself.
    if (next > 0 && ops_[next - 1].remade_at == next - 1) make(next - 1);
    const double freed = splits ? 0 : FreedByReaders(at);
    const double freed_again = splits ? 0 : MadeAgain(at);
    highest.See(activations - (freed - freed_again), recomputed - freed_again,
                BackwardWorkspace(at, splits), at);
    activations -= at.kept;
    recomputed -= at.again;
    if (splits) activations += LeftToWeight(at);
  }
  return highest.Result();
}

PassMemory StageWalk::Weight() const {
  Highest highest;
  double activations = 0;
  for (size_t next = ops_.size(); next-- > 0;) {
    const WalkOp& at = ops_[next];
    highest.See(activations, 0, at.part * at.op->weight_workspace, at);
    activations -= LeftToWeight(at);
  }
  return highest.Result();
}

double StageWalk::Kept() const {
  double sum = 0;
  for (const WalkOp& at : ops_) sum += at.kept;
  return sum;
}

double StageWalk::Offloaded() const {
  double sum = 0;
  for (const WalkOp& at : ops_) sum += at.offloaded ? at.kept : 0;
  return sum;
}

double StageWalk::WeightPart() const {
  double sum = 0;
  for (const WalkOp& at : ops_) sum += LeftToWeight(at);
  return sum;
}

double StageWalk::Recomputed() const {
  double sum = 0;
  for (const WalkOp& at : ops_) sum += at.again;
  return sum;
}

}  // namespace pipewright
