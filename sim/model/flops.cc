#include "sim/model/flops.h"

#include "sim/model/ops.h"

namespace pipewright {
namespace {

// One sample on one device: the split over devices changes no sum.
TrainingSpec OneSample(int64_t sequence) {
  TrainingSpec training;
  training.sequence = sequence;
  training.flash_attention = true;
  return training;
}

bool Runs(const ModelOp& op, OpPass pass) { return op.Work(pass).flops > 0; }

// No product here is with weights, but those of a convolution.
bool HasTwoFactors(const ModelOp& op) {
  return op.kind == OpClass::kAttention || op.kind == OpClass::kScan ||
         op.kind == OpClass::kElementwise;
}

double ForwardFlops(const ModelSpec& model, const ModelOp& op,
                    bool halve_causal) {
  const double flops = op.Work(OpPass::kForward).flops;
  if (!model.causal) return flops;
  // Fused attention leaves out what the mask hides, the other kind does not.
  if (op.kind == OpClass::kAttention) return halve_causal ? flops : 2 * flops;
  if (op.kind == OpClass::kBatchedGemm) return halve_causal ? flops / 2 : flops;
  return flops;
}

double NeededFlops(const ModelSpec& model, const std::vector<ModelOp>& ops,
                   bool halve_causal) {
  double sum = 0;
  for (const ModelOp& op : ops) {
    // Gradients are of both factors of each product: of attention, and in scans
    // and convolutions.
    const double backward = HasTwoFactors(op) ? 2 : 1;
    const double passes = 1 +
                          (Runs(op, OpPass::kBackwardInput) ? backward : 0) +
                          (Runs(op, OpPass::kBackwardWeight) ? 1 : 0);
    sum += passes * ForwardFlops(model, op, halve_causal);
  }
  return sum;
}

}  // namespace

double ModelFlopsPerToken(const ModelSpec& model, int64_t sequence,
                          bool halve_causal) {
  const TrainingSpec training = OneSample(sequence);
  const Inventory inventory(model, training);
  double flops = 0;
  const auto add = [&](BlockKind kind, int64_t layer, int64_t count) {
    flops += static_cast<double>(count) *
             NeededFlops(model, inventory.Ops(kind, layer), halve_causal);
  };
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    add(model.IsExpertLayer(layer) ? BlockKind::kExpertLayer
                                   : BlockKind::kDenseLayer,
        layer, 1);
  }
  add(BlockKind::kMtpLayer, model.layers, model.mtp_layers);
  add(BlockKind::kHead, model.layers, 1);
  return flops / static_cast<double>(sequence);
}

double RecomputedFlopsPerToken(const ModelSpec& model,
                               const TrainingSpec& training,
                               const StageLayout& layout,
                               const std::vector<int>& rank_of_stage,
                               bool halve_causal) {
  TrainingSpec sample = OneSample(training.sequence);
  sample.flash_attention = training.flash_attention;
  sample.recompute_modules = training.recompute_modules;
  const std::vector<Recompute> recompute =
      RecomputeOfStages(training, rank_of_stage);
  const Inventory inventory(model, sample);
  double flops = 0;
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    if (recompute[stage] == Recompute::kNone) continue;
    double before = 0;  // layers of this stage
    for (const StageBlock& block : layout.stages[stage]) {
      if (!IsLayer(block.kind)) continue;
      // Frozen and trained layers may stand in one run of layers.
      for (int64_t at = 0; at < block.count; ++at) {
        if (training.RecomputedLayers(before++, 1) == 0) continue;
        bool runs_backward = false;
        double again = 0;
        for (const ModelOp& op :
             inventory.Ops(block.kind, block.first_layer + at)) {
          runs_backward |= Runs(op, OpPass::kBackwardInput);
          again += RecomputedPart(op, recompute[stage], training.stops_early) *
                   ForwardFlops(model, op, halve_causal);
        }
        if (runs_backward) flops += block.part * again;
      }
    }
  }
  return flops / static_cast<double>(training.sequence);
}

}  // namespace pipewright
