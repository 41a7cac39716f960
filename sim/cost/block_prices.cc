#include "sim/cost/block_prices.h"

#include <algorithm>

#include "sim/cost/exchange.h"
#include "sim/cost/host_time.h"

namespace pipewright {
namespace {

// Places in tables by pass. [numerics]
constexpr int kForward = static_cast<int>(OpPass::kForward);
constexpr int kInput = static_cast<int>(OpPass::kBackwardInput);
constexpr int kWeight = static_cast<int>(OpPass::kBackwardWeight);

// Multiprocessors that exchanges take while they run beside passes
// (Megatron-Core 0.15, moe_hybridep_num_sms; DeepEP's default is 20).
// [framework source]
constexpr double kExchangeMultiprocessors = 16;

// Sums over F, B and W on the device, in a run of the forward again, and on the
// host.
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
  // What was measured beside collectives, where that is more.
  const double lost = std::max(taken, 1 - 1 / options.contention);
  const double backward_s = sums->device[kInput] + sums->device[kWeight];
  const double forward_s = sums->device[kForward];
  const auto add = [&](int pass, double other_s) {
    const double beside_s = sums->beside[pass];
    const double hidden_s = std::min(beside_s, other_s);
    sums->device[pass] += beside_s - hidden_s + lost * hidden_s;
  };
  add(kForward, backward_s);
  add(kInput, forward_s);
}

// The first op behind the wait of the host for the device: it must know how
// many rows each expert gets before it launches the exchange. Both dispatchers
// wait in every forward: the all-to-all for a copy of the counts (Megatron-Core
// 0.14, token_dispatcher.py, cuda_sync_point), HybridEP in its blocking
// dispatch (NVIDIA-NeMo/Automodel, pull request 3931). Backward takes the same
// numbers. -1 where it never waits: without experts, or with experts in a
// graph.
int FirstAfterWait(const TrainingSpec& training,
                   const std::vector<ModelOp>& ops) {
  for (size_t index = 0; index < ops.size(); ++index) {
    const ModelOp& op = ops[index];
    if (op.kind != OpClass::kRouting) continue;
    return training.execution.graphs(op.part) ? -1 : static_cast<int>(index);
  }
  return -1;
}

// A forward of like layers, one after the other, in which the host has no lead
// behind each wait: an operation starts when it is launched and the one before
// it is done. That takes so much longer than the larger of both.
double WaitingSeconds(const std::vector<OpTime>& times, int first) {
  const int count = static_cast<int>(times.size());
  double host_s = 0;
  double sum_s = 0;
  double end_s = 0;
  for (int index = 0; index < count; ++index) {
    const OpTime& time = times[(first + index) % count];
    const double own_s = time.seconds[kForward] + time.comm_seconds[kForward];
    host_s += time.host_seconds[kForward];
    sum_s += own_s;
    if (own_s > 0) end_s = std::max(end_s, host_s) + own_s;
  }
  return std::max(0.0, end_s - std::max(host_s, sum_s));
}

// The part of what the forward of an op exchanges that runs again: of several
// exchanges by their times.
double ExchangedAgain(const TrainingSpec& training,
                      const AnalyticOptions& options, const ModelOp& op,
                      Recompute recompute) {
  const double computed = RecomputedPart(op, recompute, training.stops_early);
  if (recompute != Recompute::kOpSelective) return computed;
  double all_s = 0;
  double again_s = 0;
  for (const OpComm& comm : op.comms) {
    if (comm.pass != OpPass::kForward) continue;
    const double seconds = CommSeconds(options, training, comm);
    all_s += seconds;
    again_s += CommRecomputedPart(op, comm, recompute) * seconds;
  }
  return all_s > 0 ? again_s / all_s : computed;
}

}  // namespace

double HostSeconds(const TrainingSpec& training, const AnalyticOptions& options,
                   const std::vector<ModelOp>& ops,
                   const std::vector<OpTime>& times, OpPass pass) {
  double seconds = options.launch_s * GraphLaunches(training, ops, pass);
  for (const OpTime& time : times) {
    seconds += time.host_seconds[static_cast<int>(pass)];
  }
  return seconds;
}

BlockSeconds SumBlock(const TrainingSpec& training,
                      const AnalyticOptions& options,
                      const std::vector<ModelOp>& ops,
                      const std::vector<OpTime>& times, BlockKind kind,
                      Recompute recompute) {
  BlockSeconds sum;
  Sums sums;
  double recomputed_joules = 0;
  const bool is_layer =
      kind != BlockKind::kEmbedding && kind != BlockKind::kHead;
  bool runs_backward = false;
  for (size_t index = 0; index < ops.size(); ++index) {
    const OpTime& time = times[index];
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      const double seconds = time.seconds[pass] + time.comm_seconds[pass];
      sums.device[pass] += seconds;
      sums.beside[pass] += time.beside_seconds[pass];
      sum.joules[pass] += time.joules[pass];
      runs_backward |= pass > 0 && seconds > 0;
    }
    if (is_layer) {
      const double again =
          RecomputedPart(ops[index], recompute, training.stops_early);
      const double exchanged =
          ExchangedAgain(training, options, ops[index], recompute);
      // What exchanges copy, and what they cut products for, comes with them.
      const double copied_s = time.seconds[kForward] -
                              time.kernel_seconds[kForward] -
                              time.cast_seconds[kForward];
      const double cut_s = time.cut_seconds[kForward];
      const double own_s = time.seconds[kForward] - copied_s - cut_s;
      sums.recomputed_device +=
          again * (own_s + (exchanged > 0 ? cut_s : 0)) +
          exchanged * (copied_s + time.comm_seconds[kForward] +
                       time.beside_seconds[kForward]);
      sums.recomputed_host += again * time.host_seconds[kForward];
      recomputed_joules += again * time.joules[kForward];
    }
    sum.saved_until_backward += ops[index].saved_until_backward;
    sum.saved_until_weight +=
        ops[index].saved_until_weight + ops[index].held_for_weight;
  }
  for (int pass = 0; pass < kNumOpPasses; ++pass) {
    sums.host[pass] =
        HostSeconds(training, options, ops, times, static_cast<OpPass>(pass));
  }
  HideBesidePasses(options, &sums);
  for (int pass = 0; pass < kNumOpPasses; ++pass) {
    sum.passes[pass] = std::max(sums.device[pass], sums.host[pass]);
  }
  sum.full = std::max(sums.device[kInput] + sums.device[kWeight],
                      sums.host[kInput] + sums.host[kWeight]);
  if (runs_backward) {
    sum.recompute = std::max(sums.recomputed_device, sums.recomputed_host);
    sum.recompute_joules = recomputed_joules;
  }
  const int first = FirstAfterWait(training, ops);
  if (first >= 0 && options.launch_s > 0) {
    const double waiting_s = WaitingSeconds(times, first);
    sum.passes[kForward] += waiting_s;
    if (runs_backward && recompute != Recompute::kOpSelective &&
        RecomputedPart(ops[first], recompute) > 0) {
      sum.recompute += waiting_s;
    }
  }
  return sum;
}

namespace {

void SumExchanges(const std::vector<ModelOp>& ops,
                  const std::vector<OpTime>& times,
                  const TrainingSpec& training, const AnalyticOptions& options,
                  Recompute recompute, BlockSeconds* sum) {
  for (size_t index = 0; index < ops.size(); ++index) {
    if (ops[index].comms.empty()) continue;
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      const std::vector<PassExchange> own =
          ExchangesOf(options, training, ops[index], times[index],
                      static_cast<OpPass>(pass));
      AddExchanges(own, 1, &sum->exchanges[pass]);
      if (pass > 0 || sum->recompute <= 0) continue;
      if (recompute != Recompute::kOpSelective) {
        const double again =
            RecomputedPart(ops[index], recompute, training.stops_early);
        if (again > 0) AddExchanges(own, again, &sum->recomputed);
        continue;
      }
      for (const OpComm& comm : ops[index].comms) {
        const double again = CommRecomputedPart(ops[index], comm, recompute);
        if (again <= 0) continue;
        ModelOp alone = ops[index];
        alone.comms = {comm};
        AddExchanges(ExchangesOf(options, training, alone, times[index],
                                 OpPass::kForward),
                     again, &sum->recomputed);
      }
    }
  }
}

}  // namespace

const std::vector<OpTime>& BlockPrices::Times(BlockKind kind,
                                              int64_t layer) const {
  return times_.Get({kind, inventory_->ClassOf(layer)}, [&] {
    return BlockTimes(inventory_->model(), inventory_->training(), options_,
                      kind, layer);
  });
}

const BlockSeconds& BlockPrices::Sum(BlockKind kind, int64_t layer,
                                     Recompute recompute) const {
  const std::vector<OpTime>& times = Times(kind, layer);
  const std::vector<ModelOp>& ops = inventory_->Ops(kind, layer);
  return sums_.Get({kind, inventory_->ClassOf(layer), recompute}, [&] {
    BlockSeconds sum =
        SumBlock(inventory_->training(), options_, ops, times, kind, recompute);
    SumExchanges(ops, times, inventory_->training(), options_, recompute, &sum);
    return sum;
  });
}

const BlockPrices& BlockPrices::WithPower(double energy,
                                          ExchangePower exchanges) const {
  return *with_power_.Get({energy, exchanges}, [&] {
    AnalyticOptions options = options_;
    options.device.bf16_joules_per_flop *= energy;
    options.exchange_power = exchanges;
    return std::make_unique<const BlockPrices>(inventory_, std::move(options));
  });
}

}  // namespace pipewright
