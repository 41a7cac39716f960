#include "sim/memory/stage_walk.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace pipewright {
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
  const double linear = FreedByReaders(at);
  if (at.whole_block) return std::min(linear, at.again);
  return at.again > 0 ? std::min(linear, at.part * at.op->recomputable_weight)
                      : 0;
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
    const bool runs = at.whole_block || at.again > 0;
    const double workspace = runs ? at.part * at.op->forward_workspace : 0;
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
    if (at.whole_block && !made[next]) {
      // The forward of the block once more, keeping everything.
      size_t first = next;
      while (first > 0 && ops_[first - 1].block == at.block) --first;
      for (size_t index = first; index <= next; ++index) {
        make(index);
        highest.See(
            activations, recomputed,
            at.stream + ops_[index].part * ops_[index].op->forward_workspace,
            ops_[index], "recomputed ");
      }
    }
    make(next);
    // Its input, where the op before it makes that again.
    if (next > 0) make(next - 1);
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
