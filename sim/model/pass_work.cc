#include "sim/model/pass_work.h"

#include <algorithm>

#include "sim/model/ops.h"

namespace pipewright {
namespace {

// One sample on one device: the split over devices changes no ratio.
constexpr int64_t kProbe = 1024;

TrainingSpec ProbeTraining(bool flash_attention) {
  TrainingSpec training;
  training.sequence = kProbe;
  training.flash_attention = flash_attention;
  return training;
}

bool IsSquare(const ModelOp& op) {
  return op.kind == OpClass::kAttention || op.kind == OpClass::kBatchedGemm;
}

bool IsLinearLayer(const ModelOp& op) {
  return op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
}

void Add(const ModelOp& op, double flops, PassWork* work) {
  constexpr auto tokens = static_cast<double>(kProbe);
  if (IsSquare(op)) {
    work->square += flops / (tokens * tokens);
  } else {
    work->linear += flops / tokens;
  }
}

template <typename Visit>
void VisitOps(const ModelSpec& model, const TrainingSpec& training,
              const Visit& visit) {
  const auto add = [&](BlockKind kind, int64_t layer, int64_t count) {
    for (const ModelOp& op : BlockOps(model, training, kind, layer)) {
      visit(kind, op, static_cast<double>(count));
    }
  };
  for (int64_t layer = 0; layer < model.layers; ++layer) {
    add(model.IsExpertLayer(layer) ? BlockKind::kExpertLayer
                                   : BlockKind::kDenseLayer,
        layer, 1);
  }
  if (model.mtp_layers > 0) {
    add(BlockKind::kMtpLayer, model.layers, model.mtp_layers);
  }
  add(BlockKind::kHead, model.layers, 1);
}

double Ratio(double work, double base, double tokens) {
  return base > 0 ? work / base : tokens;
}

}  // namespace

PassWorks PassWorks::OfCost(const SampleCost& cost) {
  PassWork work = {.linear = 1};
  constexpr double kUnit = 32000;  // unit of the fit, tokens
  if (cost.kind == PackerCost::kFit) {
    work = {.linear = kFit7B.linear / kUnit,
            .square = kFit7B.square / (kUnit * kUnit)};
  } else if (cost.kind == PackerCost::kFlops) {
    work = {.linear = cost.weights_over_queries, .square = 1};
  }
  return {work, work, work};
}

PassWorks WorksOf(const ModelSpec& model, const TrainingSpec& training,
                  double recomputed) {
  PassWorks works;
  TrainingSpec probe = ProbeTraining(training.flash_attention);
  probe.recompute_modules = training.recompute_modules;
  VisitOps(model, probe, [&](BlockKind kind, const ModelOp& op, double count) {
    Add(op, count * op.Work(OpPass::kForward).flops, &works.forward);
    double backward = op.Work(OpPass::kBackwardInput).flops;
    if (kind != BlockKind::kHead) {
      backward += recomputed *
                  RecomputedPart(op, training.recompute, training.stops_early) *
                  op.Work(OpPass::kForward).flops;
    }
    Add(op, count * backward, &works.backward_input);
    Add(op, count * op.Work(OpPass::kBackwardWeight).flops,
        &works.backward_weight);
  });
  return works;
}

double WeightsOverQueries(const ModelSpec& model) {
  double weights = 0;
  double layers = 0;
  constexpr auto tokens = static_cast<double>(kProbe);
  VisitOps(model, ProbeTraining(true),
           [&](BlockKind kind, const ModelOp& op, double count) {
             if (kind == BlockKind::kHead) return;
             if (IsSquare(op)) layers += count;
             if (!IsLinearLayer(op)) return;
             // A multiply-add of every weight and token counts as two.
             weights += count * op.Work(OpPass::kForward).flops / (2 * tokens);
           });
  const double queries = layers * static_cast<double>(model.heads) *
                         static_cast<double>(model.QueryDim());
  return queries > 0 ? weights / queries : 0;
}

MicrobatchFactors FactorsOf(const Parts& microbatches,
                            const std::vector<int64_t>& lengths,
                            const PassWorks& works, int64_t sequence,
                            int samples) {
  MicrobatchFactors factors;
  const PassWork* work[] = {&works.forward, &works.backward_input,
                            &works.backward_weight};
  std::vector<double>* out[] = {&factors.forward, &factors.backward_input,
                                &factors.backward_weight};
  const double base_tokens =
      static_cast<double>(sequence) * static_cast<double>(samples);
  for (const SampleSet& microbatch : microbatches) {
    int64_t tokens = 0;
    for (const int sample : microbatch) tokens += lengths[sample];
    factors.tokens += tokens;
    factors.most_tokens = std::max(factors.most_tokens, tokens);
    for (int kind = 0; kind < 3; ++kind) {
      double sum = 0;
      for (const int sample : microbatch)
        sum += work[kind]->At(lengths[sample]);
      out[kind]->push_back(Ratio(sum, samples * work[kind]->At(sequence),
                                 static_cast<double>(tokens) / base_tokens));
    }
  }
  return factors;
}

}  // namespace pipewright
