// The rule by which a step changes weights: what it keeps for a weight, and
// which matrices it has to see whole. No times.
#pragma once

#include <cstdint>

namespace pipewright {

enum class OptimizerKind : uint8_t {
  kAdam,  // two moments a weight; AdamW alike
  // Momentum, orthogonalised by Newton-Schulz, of the matrices of layers; the
  // rest by Adam (Keller Jordan, kellerjordan.github.io/posts/muon; arXiv
  // 2502.16982).
  kMuon,
  kAdafactor,  // a factor a row and one a column (arXiv 1804.04235)
  kSgd,
  kSgdMomentum,
  kLion,  // one momentum, whose sign counts (arXiv 2302.06675)
};

// Where the matrices of Muon are stepped if replicas share the step.
enum class MuonDistribution : uint8_t {
  kLayerWise,  // each whole on one of them (Megatron-LM)
  // Each has its part of every momentum, gathers the matrix, and all of them
  // orthogonalise it.
  kGathered,
};

// A matrix that tensor parallelism splits (Megatron-LM, muon_tp_mode).
enum class MuonTpMode : uint8_t {
  kBlockwise,    // each part for itself
  kDuplicated,   // gathered; each device orthogonalises all of it
  kDistributed,  // parts stay, their products with themselves are summed
};

struct OptimizerRule {
  OptimizerKind kind = OptimizerKind::kAdam;
  // Bytes of the one momentum of Muon's matrices, SGD and Lion.
  double momentum_bytes = 4;
  int newton_schulz_steps = 5;
  // Muon takes queries, keys and values apart that one matrix holds.
  bool splits_qkv = true;
  MuonDistribution distribution = MuonDistribution::kLayerWise;
  MuonTpMode tp_mode = MuonTpMode::kDuplicated;
  // Are gradients reduced during the backward, bucket by bucket?
  bool overlaps = true;

  bool is_muon() const { return kind == OptimizerKind::kMuon; }
  friend bool operator==(const OptimizerRule&, const OptimizerRule&) = default;
};

}  // namespace pipewright
