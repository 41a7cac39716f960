#include "sim/cost/block_time.h"

#include <algorithm>
#include <vector>

#include "sim/cost/host_time.h"

namespace pipewright {
namespace {

constexpr int kForward = static_cast<int>(OpPass::kForward);
constexpr int kInput = static_cast<int>(OpPass::kBackwardInput);
constexpr int kWeight = static_cast<int>(OpPass::kBackwardWeight);

// Multiprocessors that exchanges take while they run beside passes
// (Megatron-Core 0.15, moe_hybridep_num_sms; DeepEP's default is 20).
constexpr double kExchangeMultiprocessors = 16;

// Of F, B and W on the device, in a run of the forward again, and on the host.
struct Sums {
  double device[kNumOpPasses] = {0, 0, 0};
  double beside[kNumOpPasses] = {0, 0, 0};
  double host[kNumOpPasses] = {0, 0, 0};
  double recomputed_device = 0;
  double recomputed_host = 0;
};

// Exchanges that run beside the passes of another microbatch. Those of F hide
// behind B and W, those of B behind F; the multiprocessors that they take are
// missed by the passes.
void HideBesidePasses(const AnalyticOptions& options, Sums* sums) {
  const double taken =
      options.device.multiprocessors > 0
          ? kExchangeMultiprocessors / options.device.multiprocessors
          : 0;
  const double backward_s = sums->device[kInput] + sums->device[kWeight];
  const double forward_s = sums->device[kForward];
  const auto add = [&](int pass, double other_s) {
    const double beside_s = sums->beside[pass];
    const double hidden_s = std::min(beside_s, other_s);
    sums->device[pass] += beside_s - hidden_s + taken * hidden_s;
  };
  add(kForward, backward_s);
  add(kInput, forward_s);
}

}  // namespace

BlockSeconds SumBlock(const ModelSpec& model, const TrainingSpec& training,
                      const AnalyticOptions& options, BlockKind kind,
                      int64_t layer, Recompute recompute) {
  BlockSeconds sum;
  Sums sums;
  const std::vector<ModelOp> ops = BlockOps(model, training, kind, layer);
  const std::vector<OpTime> times =
      BlockTimes(model, training, options, kind, layer);
  const bool is_layer =
      kind != BlockKind::kEmbedding && kind != BlockKind::kHead;
  bool runs_backward = false;
  for (size_t index = 0; index < ops.size(); ++index) {
    const OpTime& time = times[index];
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      const double seconds = time.seconds[pass] + time.comm_seconds[pass];
      sums.device[pass] += seconds;
      sums.beside[pass] += time.beside_seconds[pass];
      sums.host[pass] += time.host_seconds[pass];
      runs_backward |= pass > 0 && seconds > 0;
    }
    if (is_layer && IsRecomputed(ops[index], recompute)) {
      sums.recomputed_device += time.seconds[kForward] +
                                time.comm_seconds[kForward] +
                                time.beside_seconds[kForward];
      sums.recomputed_host += time.host_seconds[kForward];
    }
    sum.saved_until_backward += ops[index].saved_until_backward;
    sum.saved_until_weight +=
        ops[index].saved_until_weight + ops[index].held_for_weight;
  }
  for (int pass = 0; pass < kNumOpPasses; ++pass) {
    sums.host[pass] += options.launch_s *
                       GraphLaunches(training, ops, static_cast<OpPass>(pass));
  }
  HideBesidePasses(options, &sums);
  for (int pass = 0; pass < kNumOpPasses; ++pass) {
    sum.passes[pass] = std::max(sums.device[pass], sums.host[pass]);
  }
  sum.full = std::max(sums.device[kInput] + sums.device[kWeight],
                      sums.host[kInput] + sums.host[kWeight]);
  if (runs_backward) {
    sum.recompute = std::max(sums.recomputed_device, sums.recomputed_host);
  }
  return sum;
}

}  // namespace pipewright
