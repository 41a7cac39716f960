#include "sim/cost/analytic.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "sim/cost/block_prices.h"
#include "sim/cost/cast_time.h"
#include "sim/cost/clock.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"
#include "sim/cost/silicon.h"

namespace pipewright {
namespace {

// Bytes that Adam moves for a parameter that it updates: reads the fp32
// gradient, master weight and two moments, writes the last three and the
// bf16 weight (4 * 4 + 3 * 4 + 2).
constexpr double kOptimizerBytes = 30;
// To predict it: reads the master weight and both moments, writes the bf16
// weight.
constexpr double kPredictionBytes = 14;

NcclGeneration GenerationOf(const DeviceSpec& device) {
  if (device.architecture == "blackwell") return NcclGeneration::kBlackwell;
  return device.architecture == "hopper" ? NcclGeneration::kHopper
                                         : NcclGeneration::kAmpere;
}

// Measured collectives of one node are those of NVLink as the devices of the
// tables had it: NVIDIA's sheets, GB/s of one direction.
bool HasLinksOfTables(const AnalyticOptions& options) {
  if (options.silicon == nullptr) return false;
  // A user's tables are of the links that they were measured on.
  if (!options.silicon->is_shipped()) return true;
  const std::string& architecture = options.silicon->device().architecture;
  const double measured = architecture == "blackwell" ? 900e9
                          : architecture == "hopper"  ? 450e9
                                                      : 300e9;
  return std::abs(options.network.nvlink_bytes_per_s / measured - 1) < 0.05;
}

// Of `count` more layers of a stage those that are recomputed.
double RecomputedCount(const TrainingSpec& training, double count,
                       double* before) {
  if (training.recompute_layers == 0) return count;
  const double left =
      std::clamp(training.recompute_layers - *before, 0.0, count);
  *before += count;
  return left;
}

struct StageParameters {
  double dense = 0;
  double expert = 0;
};

// By one device.
double Updated(const TrainingSpec& training, double dense_parameters,
               double expert_parameters) {
  const double shards = training.zero >= 1 ? training.shards() : 1;
  const double expert_shards =
      training.zero >= 1 ? training.expert_shards() : 1;
  return dense_parameters / shards + expert_parameters / expert_shards;
}

}  // namespace

// Devices of a tensor-parallel group are neighbours; those of a context group
// stand tp apart, those of an expert group tp * cp at most.
NcclGroup NcclGroupOf(const AnalyticOptions& options,
                      const TrainingSpec& training, const OpComm& comm) {
  const AnalyticNetwork& network = options.network;
  int spread = comm.members;
  if (comm.group != CommGroup::kTensor) spread *= training.tp;
  NcclGroup group;
  group.ranks = comm.members;
  group.nodes = std::clamp(
      (spread + network.devices_per_node - 1) / network.devices_per_node, 1,
      comm.members);
  group.generation = GenerationOf(options.device);
  // A100: 12 channels of 20 GB/s, H100: 18 of 20.6.
  group.channels = group.generation == NcclGeneration::kAmpere ? 12 : 18;
  const double bus =
      group.nodes == 1
          ? network.nvlink_bytes_per_s * options.device.collective_sustained
          : std::min(network.nic_bytes_per_s * comm.members / group.nodes,
                     network.nvlink_bytes_per_s *
                         options.device.collective_sustained);
  group.channel_GBps = 1e-9 * bus / group.channels;
  return group;
}

std::optional<CollectiveKind> CollectiveOf(CommKind kind) {
  switch (kind) {
    case CommKind::kAllReduce:
      return CollectiveKind::kAllReduce;
    case CommKind::kAllGather:
      return CollectiveKind::kAllGather;
    case CommKind::kReduceScatter:
      return CollectiveKind::kReduceScatter;
    case CommKind::kAllToAll:
    case CommKind::kRing:
      return {};
  }
  return {};
}

double CommSeconds(const AnalyticOptions& options, const TrainingSpec& training,
                   const OpComm& comm) {
  if (comm.members == 1 || comm.bytes <= 0) return 0;
  const NcclGroup group = NcclGroupOf(options, training, comm);
  const bool measured = group.nodes == 1 && HasLinksOfTables(options);
  if (const auto kind = CollectiveOf(comm.kind)) {
    const MeasuredMembers members = {
        .profile = measured ? options.silicon->collectives() : nullptr,
        .nodes = 1,
        .transport = "nccl"};
    return TimeOfCollective(*kind, comm.bytes, comm.members, group,
                            members.profile == nullptr ? nullptr : &members)
        ->seconds;
  }
  if (measured && comm.kind == CommKind::kAllToAll) {
    if (const auto time = options.silicon->AllToAll(comm.members, comm.bytes)) {
      return time->seconds;
    }
  }
  const double bus = group.channels * group.channel_GBps * 1e9;
  // What a message without bytes takes of all members.
  const double start_s =
      TimeOfCollective(CollectiveKind::kAllGather, 1, comm.members, group)
          ->seconds;
  switch (comm.kind) {
    case CommKind::kAllToAll: {
      // Between nodes each device has its own part of the cards.
      const double within =
          group.nodes == 1
              ? 1
              : (static_cast<double>(group.ranks) / group.nodes - 1) /
                    (group.ranks - 1);
      const double sent =
          comm.bytes * (group.ranks - 1) / static_cast<double>(group.ranks);
      const double nvlink = options.network.nvlink_bytes_per_s *
                            options.device.collective_sustained;
      const double outside =
          group.nodes == 1
              ? 0
              : sent * (1 - within) / options.network.nic_bytes_per_s;
      return std::max(sent * within / nvlink, outside) + start_s;
    }
    case CommKind::kRing:
      return (group.ranks - 1) * (comm.bytes / bus + start_s / group.ranks);
    default:
      return 0;
  }
}

std::vector<OpTime> BlockTimes(const ModelSpec& model,
                               const TrainingSpec& training,
                               const AnalyticOptions& options, BlockKind kind,
                               int64_t layer) {
  std::vector<OpTime> times;
  // The head's products are no modules of Transformer Engine: 16 bit.
  TrainingSpec own = training;
  if (kind == BlockKind::kHead) own.precision = Precision::kBf16;
  const std::vector<ModelOp> ops = BlockOps(model, training, kind, layer);
  // [op * kNumOpPasses + pass], in a short run.
  std::vector<KernelEstimate> kernels;
  std::vector<double> casts;
  std::vector<LoadedKernel> loads;
  const double streamed =
      options.device.hbm_bytes_per_s * options.device.hbm_sustained;
  double idle_s = 0;
  bool after_norm = false;
  for (const ModelOp& op : ops) {
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      kernels.push_back(EstimateKernel(options, own, model.causal, op,
                                       static_cast<OpPass>(pass),
                                       !model.layer_norm));
      loads.push_back(kernels.back().load);
      casts.push_back(
          CastSeconds(options, own, op, static_cast<OpPass>(pass), after_norm));
      if (casts.back() > 0) {
        loads.push_back(Streaming(casts.back(), casts.back() * streamed));
      }
    }
    for (const OpComm& comm : op.comms) {
      if (!comm.overlaps) idle_s += CommSeconds(options, training, comm);
    }
    after_norm = op.kind == OpClass::kNorm;
  }
  // The passes of a block follow each other as long as the step lasts, so their
  // mean power decides. Exchanges draw little; what a device waits outside of
  // its passes is not counted.
  const double clock = options.silicon != nullptr && options.sustained
                           ? ClockUnder(options.device, loads, idle_s)
                           : 1;
  for (size_t index = 0; index < ops.size(); ++index) {
    OpTime time;
    time.name = ops[index].name;
    double beside[kNumOpPasses] = {0, 0, 0};
    for (const OpComm& comm : ops[index].comms) {
      const int pass = static_cast<int>(comm.pass);
      const double seconds = CommSeconds(options, training, comm);
      (comm.overlaps ? beside[pass] : time.comm_seconds[pass]) += seconds;
    }
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      const size_t at = index * kNumOpPasses + pass;
      KernelEstimate& kernel = kernels[at];
      LowerClock(options.device, clock, &kernel);
      time.seconds[pass] = kernel.seconds + casts[at];
      time.cast_seconds[pass] = casts[at];
      const LoadedKernel& load = kernel.load;
      if (load.least_s > 0 && load.clocked_s > 0) {
        time.held_seconds[pass] = std::max(
            0.0, kernel.seconds - load.steady_s - load.clocked_s / clock);
      }
      time.error[pass] = kernel.error;
      time.how[pass] = std::move(kernel.how);
      time.comm_seconds[pass] +=
          std::max(0.0, beside[pass] - time.seconds[pass]);
    }
    times.push_back(std::move(time));
  }
  return times;
}

// All-gather of a hop's parts at its receiver.
double GatherSeconds(const ModelSpec& model, const TrainingSpec& training,
                     const AnalyticOptions& options) {
  if (!training.gathers_hops()) return 0;
  const OpComm gather = {.kind = CommKind::kAllGather,
                         .members = training.tp,
                         .bytes = BoundaryBytes(model, training)};
  return training.slices * CommSeconds(options, training, gather);
}

double OptimizerSeconds(const DeviceSpec& device, const TrainingSpec& training,
                        double dense_parameters, double expert_parameters) {
  return StreamSeconds(
      device,
      kOptimizerBytes * Updated(training, dense_parameters, expert_parameters));
}

double MostUpdatedParameters(const ModelSpec& model,
                             const TrainingSpec& training,
                             const StageLayout& layout,
                             const std::vector<int>& rank_of_stage,
                             int directions) {
  return MostUpdatedParameters(Inventory(model, training), layout,
                               rank_of_stage, directions);
}

double MostUpdatedParameters(const Inventory& inventory,
                             const StageLayout& layout,
                             const std::vector<int>& rank_of_stage,
                             int directions) {
  const int last_rank =
      *std::max_element(rank_of_stage.begin(), rank_of_stage.end());
  std::vector<StageParameters> parameters(last_rank + 1);
  const auto add = [&](int rank, const ModelOp& op, double times) {
    StageParameters& own = parameters[rank];
    (op.is_expert ? own.expert : own.dense) += times * op.parameters;
  };
  const std::set<int> has_table = RanksWithTable(layout, rank_of_stage);
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    const int rank = rank_of_stage[stage];
    for (const StageBlock& block : layout.stages[stage]) {
      // Frozen and trained layers may stand in one run of layers.
      const int64_t alike =
          inventory.model().frozen_layers == 0 ? block.count : 1;
      for (int64_t at = 0; at < block.count; at += alike) {
        const double times = static_cast<double>(alike) * block.part;
        for (const ModelOp& op :
             inventory.Ops(block.kind, block.first_layer + at)) {
          if (op.is_frozen || (op.is_tied && has_table.contains(rank))) {
            continue;
          }
          add(rank, op, times);
          if (directions == 2) add(last_rank - rank, op, times);
        }
      }
    }
  }
  double most = 0;
  for (const StageParameters& sizes : parameters) {
    most = std::max(most,
                    Updated(inventory.training(), sizes.dense, sizes.expert));
  }
  return most;
}

double AnalyticOptimizerSeconds(const BlockPrices& prices,
                                const StageLayout& layout,
                                const std::vector<int>& rank_of_stage,
                                int directions) {
  return StreamSeconds(
      prices.options().device,
      kOptimizerBytes * MostUpdatedParameters(prices.inventory(), layout,
                                              rank_of_stage, directions));
}

PassCosts AnalyticCosts(const ModelSpec& model, const TrainingSpec& training,
                        const AnalyticOptions& options,
                        const StageLayout& layout,
                        const std::vector<int>& rank_of_stage) {
  return AnalyticCosts(
      BlockPrices(std::make_shared<const Inventory>(model, training), options),
      layout, rank_of_stage);
}

PassCosts AnalyticCosts(const BlockPrices& prices, const StageLayout& layout,
                        const std::vector<int>& rank_of_stage) {
  const ModelSpec& model = prices.inventory().model();
  const TrainingSpec& training = prices.inventory().training();
  PassCosts costs;
  double until_weight = 0;
  double saved = 0;
  const std::vector<Recompute> recompute =
      RecomputeOfStages(training, rank_of_stage);
  const double gather_s = GatherSeconds(model, training, prices.options());
  const auto crosses = [&](size_t stage) {
    return stage > 0 && stage < rank_of_stage.size() &&
           rank_of_stage[stage] != rank_of_stage[stage - 1];
  };
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    StageCosts seconds;
    double layers_before = 0;
    if (crosses(stage)) seconds.forward_s += gather_s;
    if (crosses(stage + 1)) seconds.backward_input_s += gather_s;
    const auto add = [&](const StageBlock& block, int64_t layer, double times) {
      const double count = times * training.slices;
      const BlockSeconds& sum = prices.Sum(block.kind, layer, recompute[stage]);
      seconds.forward_s += count * sum.passes[0];
      seconds.backward_input_s += count * sum.passes[1];
      seconds.backward_weight_s += count * sum.passes[2];
      if (sum.recompute > 0) {
        seconds.recompute_s +=
            RecomputedCount(training, times, &layers_before) * training.slices *
            sum.recompute;
      }
      until_weight += count * sum.saved_until_weight;
      saved += count * (sum.saved_until_weight + sum.saved_until_backward);
    };
    for (const StageBlock& block : layout.stages[stage]) {
      // Frozen and trained layers may stand in one run of layers.
      const int64_t alike = model.frozen_layers == 0 ? block.count : 1;
      for (int64_t at = 0; at < block.count; at += alike) {
        add(block, block.first_layer + at,
            static_cast<double>(alike) * block.part);
      }
    }
    seconds.backward_input_s += seconds.recompute_s;
    costs.stages.push_back(seconds);
  }
  costs.optimizer_s =
      AnalyticOptimizerSeconds(prices, layout, rank_of_stage, 1);
  costs.prediction_s = costs.optimizer_s * kPredictionBytes / kOptimizerBytes;
  costs.held_until_weight = saved > 0 ? std::min(1.0, until_weight / saved) : 1;
  return costs;
}

}  // namespace pipewright
