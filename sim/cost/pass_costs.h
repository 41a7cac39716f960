// How long a pass takes: the only place that turns a pass into seconds.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/model/ops.h"
#include "sim/schedule/pass.h"
#include "sim/topology/cluster.h"

namespace pipewright {

// Seconds of one microbatch (all its slices) through one stage.
struct StageCosts {
  double forward_s = 0;
  double backward_input_s = 0;
  double backward_weight_s = 0;
  // B and W as one pass; 0: the sum of the two.
  double backward_full_s = 0;
  double recompute_s = 0;
  double offload_s = 0;  // device to host, activations of one microbatch
  double load_s = 0;     // host to device
};

// [LinkKind] what the same bytes take on links of this kind alone.
using LinkSeconds = std::array<double, kNumLinkKinds>;

// What a pass exchanges inside a group of devices: a part of its time. Bytes
// are those over each edge of a ring of all members, or to each of them.
struct PassExchange {
  CommGroup group = CommGroup::kTensor;
  int members = 1;
  bool to_all = false;     // to each member, not round a ring
  bool is_beside = false;  // computation, which takes compute_s
  double seconds = 0;      // alone, latency_s among them
  double latency_s = 0;    // nothing is on the links yet
  double bytes = 0;
  double compute_s = 0;
  // So many times the bytes go to each member on the own node.
  double inside = 1;
  // Parts of seconds - latency_s, all of which the slowest kind takes; all 0:
  // not known.
  LinkSeconds on_links_s = {};
  double rounds = 0;  // ways round the ring, or to all others
};

// Exchanges of one microbatch through a stage, as StageCosts. What is run again
// is part of the backward, too, as long as its time is.
struct StageExchanges {
  int layers = 1;
  std::vector<PassExchange> forward;
  std::vector<PassExchange> backward_input;
  std::vector<PassExchange> backward_weight;
  std::vector<PassExchange> recompute;
};

// Exchanges of passes of one kind through one stage, for each second that one
// takes: in so many pieces, each computation first.
struct LaneExchanges {
  int pieces = 1;
  std::vector<PassExchange> each;
};

struct PassCosts {
  std::vector<StageCosts> stages;  // [stage], pp * vpp of them
  // [stage]; empty where nobody knows, as of times that are given.
  std::vector<StageExchanges> exchanges;
  // Energy of each pass on one device above the idle power's, J instead of s;
  // empty where nobody knows.
  std::vector<StageCosts> joules;
  // Factor on F, B, W, BW, R of a microbatch; empty: 1 for all.
  std::vector<double> microbatch_factor;
  // The same for a slice; both multiply.
  std::vector<double> slice_factor;
  // The optimizer step of one rank, one rank's check of it afterwards, and
  // undoing it.
  double optimizer_s = 0;
  double validation_s = 0;
  double rollback_s = 0;
  // Predicting the weights of a rank for one microbatch.
  double prediction_s = 0;
  // Part of a pass's activations that a split B leaves until its W.
  double held_until_weight = 1;
  // Time of a block (X&Y) over that of X and Y one after the other.
  double pair_factor = 1;

  // Every stage alike. The times are those of one microbatch through all `vpp`
  // stages of a rank; a stage takes 1/vpp of them.
  static PassCosts Uniform(int pp, int vpp, const StageCosts& per_rank);

  // One slice of `slices` of a microbatch; the factors are left to
  // MicrobatchFactor and SliceFactor. SYNC takes no time of its own.
  double Seconds(PassKind kind, int stage, int slices) const {
    return OfPass(stages[stage], kind, slices);
  }
  static double OfPass(const StageCosts& costs, PassKind kind, int slices);
  double MicrobatchFactor(int microbatch) const {
    return microbatch_factor.empty() ? 1.0 : microbatch_factor[microbatch];
  }
  double SliceFactor(int slice) const {
    return slice_factor.empty() ? 1.0 : slice_factor[slice];
  }
};

}  // namespace pipewright
