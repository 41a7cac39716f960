#include "sim/cost/pass_costs.h"

#include "sim/base/check.h"

namespace pipewright {

PassCosts PassCosts::Uniform(int pp, int vpp, const StageCosts& per_rank) {
  const StageCosts stage = {
      .forward_s = per_rank.forward_s / vpp,
      .backward_input_s = per_rank.backward_input_s / vpp,
      .backward_weight_s = per_rank.backward_weight_s / vpp,
      .backward_full_s = per_rank.backward_full_s / vpp,
      .recompute_s = per_rank.recompute_s / vpp,
      .offload_s = per_rank.offload_s / vpp,
      .load_s = per_rank.load_s / vpp,
  };
  PassCosts costs;
  costs.stages.assign(static_cast<size_t>(pp) * vpp, stage);
  return costs;
}

double PassCosts::OfPass(const StageCosts& costs, PassKind kind, int slices) {
  switch (kind) {
    case PassKind::kForward:
      return costs.forward_s / slices;
    case PassKind::kBackwardInput:
      return costs.backward_input_s / slices;
    case PassKind::kBackwardWeight:
      return costs.backward_weight_s / slices;
    case PassKind::kBackwardFull:
      return (costs.backward_full_s > 0
                  ? costs.backward_full_s
                  : costs.backward_input_s + costs.backward_weight_s) /
             slices;
    case PassKind::kRecompute:
      return costs.recompute_s / slices;
    case PassKind::kOffload:
      return costs.offload_s / slices;
    case PassKind::kLoad:
      return costs.load_s / slices;
    case PassKind::kSync:
    case PassKind::kFree:
      return 0;
  }
  PW_CHECK(false);
}

}  // namespace pipewright
