#include "sim/cost/analytic.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "sim/cost/block_prices.h"
#include "sim/cost/cast_time.h"
#include "sim/cost/clock.h"
#include "sim/cost/contention.h"
#include "sim/cost/exchange.h"
#include "sim/cost/host_time.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"
#include "sim/cost/optimizer_time.h"
#include "sim/cost/silicon.h"

namespace pipewright {
namespace {

// Bytes of the gradient that a step moves for a parameter that the device
// updates, each a kernel of its own over fp32: the norm reads it and clipping
// scales it; Adam reads it. No source for the kernels. [assumption, bytes]
constexpr double kClippedBytes = 4 + 2 * 4;
constexpr double kAdamGradientBytes = 4;
// To predict it: reads the master weight and both moments, writes the bf16
// weight; counted. [numerics, bytes]
constexpr double kPredictionBytes = 14;
// Rate of NVLink as the devices of the tables had it: NVIDIA's sheets, one
// direction. [data sheet, bytes/s]
constexpr double kBlackwellLinks = 900e9;
constexpr double kHopperLinks = 450e9;
constexpr double kAmpereLinks = 300e9;
// A system's rate is a sheet's if it is so near. [numerics]
constexpr double kSameLinks = 0.05;
// A100: 12 channels of 20 GB/s, H100: 18 of 20.6 (NVIDIA/nccl v2.28.9,
// src/graph/topo.h). [framework source]
constexpr int kAmpereChannels = 12;
constexpr int kChannels = 18;

NcclGeneration GenerationOf(const DeviceSpec& device) {
  if (device.architecture == "blackwell") return NcclGeneration::kBlackwell;
  return device.architecture == "hopper" ? NcclGeneration::kHopper
                                         : NcclGeneration::kAmpere;
}

// Measured collectives of one node are those of NVLink as the devices of the
// tables had it.
bool HasLinksOfTables(const AnalyticOptions& options) {
  if (options.silicon == nullptr) return false;
  // A user's tables are of the links that they were measured on.
  if (!options.silicon->is_shipped()) return true;
  const std::string& architecture = options.silicon->device().architecture;
  const double measured = architecture == "blackwell" ? kBlackwellLinks
                          : architecture == "hopper"  ? kHopperLinks
                                                      : kAmpereLinks;
  return std::abs(options.network.nvlink_bytes_per_s / measured - 1) <
         kSameLinks;
}

// Adam kernel by kernel over one that does all: AdamW of PyTorch, foreach and
// fused, on an H100 with states in fp32 (experiments/torch_layers); others are
// taken to be alike. [measured]
constexpr double kUnfusedAdam = 2.8;

// Adafactor's own passes over gradient, update and weight, kernel by kernel
// over fp32 (pytorch/pytorch, torch/optim/_adafactor.py). [assumption, bytes]
constexpr double kAdafactorBytes = 76;

// Adam besides reads and writes both moments and the weight, the master one
// where there is one; Muon is that of what is no matrix. Others have their
// momentum or none.
double UpdateBytes(const TrainingSpec& training) {
  const OptimizerRule& rule = training.optimizer;
  const double weight =
      2 * std::max(training.master_bytes, training.weight_bytes);
  switch (rule.kind) {
    case OptimizerKind::kAdam:
    case OptimizerKind::kMuon:
      break;
    case OptimizerKind::kAdafactor:
      return kClippedBytes + kAdafactorBytes;
    case OptimizerKind::kSgd:
      return kClippedBytes + kAdamGradientBytes + weight;
    case OptimizerKind::kSgdMomentum:
    case OptimizerKind::kLion:
      return kClippedBytes + kAdamGradientBytes + 2 * rule.momentum_bytes +
             weight;
  }
  const double adam = kAdamGradientBytes + 2 * training.moment_bytes + weight;
  return kClippedBytes + (training.fused_optimizer ? 1 : kUnfusedAdam) * adam;
}

// Megatron-LM then casts the master weight (distrib_optimizer.py), to bf16
// where layers are gathered; in PyTorch's FSDP the gather does.
double CastBytes(const TrainingSpec& training) {
  if (training.master_bytes <= 0) return 0;
  const bool is_gathered = training.sharded.shard_group > 0;
  return training.master_bytes + (is_gathered ? 2 : training.weight_bytes);
}

struct StageParameters {
  double dense = 0;
  double expert = 0;
  // Muon's of each stage of the rank; counted above too.
  std::vector<StageMatrices> matrices;
};

// Parameters that one device has of what is sharded from ZeRO's `stage` on.
double PartOf(const TrainingSpec& training, int stage,
              const StageParameters& all) {
  if (training.zero < stage) return all.dense + all.expert;
  return all.dense / training.shards() + all.expert / training.expert_shards();
}

// What Megatron-LM's buffer of gradients adds, parameter by parameter of the
// device (NVIDIA/Megatron-LM, core/distributed/param_and_grad_buffer.py): it is
// zeroed, looked through for NaN (--check-for-nan-in-loss-and-grad, on by
// default) and, where replicas are averaged, scaled.
double BufferBytes(const TrainingSpec& training, const StageParameters& all) {
  const double passes = 2 + (training.shards() > 1 ? 2 : 0);
  return passes * training.gradient_bytes * PartOf(training, 2, all);
}

// What Megatron-LM moves beside the update of `updated` parameters of a device.
double FrameworkBytes(const AnalyticOptions& options,
                      const TrainingSpec& training, double updated,
                      const StageParameters& all) {
  if (options.kernels != FrameworkKernels::kFused) return 0;
  return CastBytes(training) * updated + BufferBytes(training, all);
}

// What the device waits for the host in F, B and W, in a short run.
double HostIdle(const AnalyticOptions& options, const TrainingSpec& training,
                const std::vector<ModelOp>& ops,
                const std::vector<KernelEstimate>& kernels,
                const std::vector<double>& casts,
                const std::vector<double>& layouts) {
  double host_s = 0;
  double device_s = 0;
  for (size_t index = 0; index < ops.size(); ++index) {
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      const size_t at = index * kNumOpPasses + pass;
      device_s += kernels[at].seconds + casts[at] + layouts[at];
      host_s += options.launch_s * HostLaunches(options, training, ops[index],
                                                static_cast<OpPass>(pass));
    }
  }
  return std::max(0.0, host_s - device_s);
}

}  // namespace

NcclGroup NcclGroupOf(const AnalyticOptions& options,
                      const TrainingSpec& training, const OpComm& comm) {
  const AnalyticNetwork& network = options.network;
  int spread = comm.members;
  if (comm.group == CommGroup::kContext) spread *= training.tp;
  if (comm.group == CommGroup::kExpert) spread *= training.etp();
  NcclGroup group;
  group.ranks = comm.members;
  group.nodes = std::clamp(
      (spread + network.devices_per_node - 1) / network.devices_per_node, 1,
      comm.members);
  const int known = network.nodes_of_group[static_cast<int>(comm.group)];
  if (known > 0) group.nodes = std::min(known, comm.members);
  group.generation = GenerationOf(options.device);
  const bool is_ampere = group.generation == NcclGeneration::kAmpere;
  group.channels = is_ampere ? kAmpereChannels : kChannels;
  const BetweenNodes& between = network.between[static_cast<int>(comm.group)];
  group.has_nvlink = network.has_nvlink;
  const double inside_rate = network.has_nvlink || between.ring_s == 0
                                 ? network.nvlink_bytes_per_s
                                 : 1 / between.ring_s;
  const double nvlink = inside_rate * options.device.collective_sustained;
  const double nics = network.nic_bytes_per_s * comm.members / group.nodes;
  // If each member has a node of its own, nothing goes over NVLink.
  double bus = group.nodes == comm.members ? nics : std::min(nics, nvlink);
  if (group.nodes == 1) bus = nvlink;
  if (group.nodes > 1) {
    if (between.ring_s > 0) bus = std::min(bus, 1 / between.ring_s);
    group.ring_latency_s = between.ring_latency_s;
    group.latency_s = between.latency_s;
  }
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
  return ExchangeSeconds(options, comm, group, measured);
}

Overlap OverlapOf(const AnalyticOptions& options, const ModelOp& op,
                  const OpComm& comm) {
  if (!comm.overlaps) return {};
  // Compiled code waits where the exchange begins, as inductor reorders nothing
  // by default (torch/distributed/_functional_collectives.py,
  // _maybe_wrap_tensor).
  if (comm.is_functional && options.kernels == FrameworkKernels::kCompiled) {
    return {};
  }
  // Rings of context parallelism, and what W gathers again.
  if (comm.group != CommGroup::kTensor || comm.pieces == 0) return {true, 0};
  const bool is_gradient = comm.pass == OpPass::kBackwardInput &&
                           comm.kind == CommKind::kReduceScatter;
  switch (options.kernels) {
    case FrameworkKernels::kFused:
      // Heads are no modules of Transformer Engine. The gradient of an input is
      // made before W's product and is reduced beside all of that
      // (ub_bulk_wgrad); W's takes as long as B's, which stands for it.
      if (op.is_wide || (is_gradient && !op.has_weight_pass)) return {};
      return {true, is_gradient ? 0 : comm.pieces};
    case FrameworkKernels::kCompiled:
      // A reduction is cut only behind a single product
      // (torch/_inductor/fx_passes/micro_pipeline_tp.py,
      // fuse_matmul_reduce_scatter).
      if (is_gradient && op.apart() > 1) return {};
      return {true, comm.pieces};
    case FrameworkKernels::kEager:
      return {};  // inductor makes the pieces
  }
  return {};
}

int PiecesOf(const AnalyticOptions& options, const ModelOp& op, OpPass pass) {
  int pieces = 1;
  if (op.kind != OpClass::kGemm) return pieces;
  for (const OpComm& comm : op.comms) {
    if (comm.pass != pass) continue;
    pieces = std::max(pieces, OverlapOf(options, op, comm).pieces);
  }
  return pieces;
}

namespace {

// What exchanges of tensor parallelism move in the device's memory besides.
// - The sums of a reduction in pieces are kept apart and read by a kernel of
//   their own (Transformer Engine, userbuffers reduce_*; PyTorch,
//   _pipelined_produce_and_all2all and a sum).
// - Before a gather in pieces PyTorch copies what the device has itself to
// where
//   the others read it (torch/distributed/_symmetric_memory,
//   _pipelined_multi_all_gather_and_consume). The second copy, into what is
//   gathered, runs beside the last piece of the product.
// - PyTorch exchanges along the first dimension, and tensors are split along
//   the second, the sequence. So all of what is gathered, and of what is
//   scattered, is copied once more
//   (torch/distributed/_functional_collectives.py, all_gather_tensor and
//   reduce_scatter_tensor; since 2025 a view where the first dimension is 1,
//   which is taken for older ones too). Pieces are laid out so that none is
//   needed. What W gathers once more PyTorch keeps from F, so that it is not
//   copied again.
double LayoutBytes(const AnalyticOptions& options, const TrainingSpec& training,
                   const ModelOp& op, int pass) {
  if (op.kind != OpClass::kGemm && op.kind != OpClass::kLookup) return 0;
  const bool copies = options.kernels != FrameworkKernels::kFused &&
                      training.sequence_parallel &&
                      training.microbatch_size > 1;
  double bytes = 0;
  for (const OpComm& comm : op.comms) {
    const bool scatters = comm.kind == CommKind::kReduceScatter;
    if (comm.group != CommGroup::kTensor ||
        static_cast<int>(comm.pass) != pass ||
        comm.pass == OpPass::kBackwardWeight ||
        (!scatters && comm.kind != CommKind::kAllGather)) {
      continue;
    }
    const Overlap overlap = OverlapOf(options, op, comm);
    if (overlap.pieces > 0) {
      if (scatters) {
        bytes += comm.bytes * (1 + 1.0 / overlap.pieces);
      } else if (options.kernels != FrameworkKernels::kFused) {
        bytes += 2 * comm.bytes / overlap.pieces;
      }
    } else if (copies) {
      bytes += 2 * comm.bytes;
    }
  }
  return bytes;
}

}  // namespace

double ExchangedBytes(const AnalyticOptions& options,
                      const TrainingSpec& training, const OpComm& comm) {
  const double others = comm.members - 1;
  switch (comm.kind) {
    case CommKind::kAllReduce:
      return 4 * comm.bytes * others / comm.members;
    case CommKind::kAllGather:
    case CommKind::kReduceScatter:
      return 2 * comm.bytes * others / comm.members;
    case CommKind::kAllToAll: {
      const NcclGroup group = NcclGroupOf(options, training, comm);
      const ExchangeBytes sent =
          BytesOfExchange(comm, group.ranks, group.nodes);
      return 2 * (sent.nvlink + sent.nic);
    }
    case CommKind::kRing:
      return 2 * comm.bytes * others;
  }
  return 0;
}

namespace {

LoadedKernel ExchangeLoad(const AnalyticOptions& options, double alone_s,
                          double bytes) {
  switch (options.exchange_power) {
    case ExchangePower::kNone:
      return {.steady_s = alone_s};
    case ExchangePower::kCopy:
      return Streaming(alone_s, bytes);
    case ExchangePower::kLimit:
      return {.steady_s = alone_s,
              .steady_joules = alone_s * (options.device.board_watts -
                                          options.device.idle_watts)};
  }
  return {};
}

double HiddenJoules(const AnalyticOptions& options, double bytes) {
  if (options.exchange_power == ExchangePower::kNone) return 0;
  return Streaming(0, bytes).steady_joules;
}

}  // namespace

double AloneSeconds(const OpComm& comm, double comm_s, double kernel_s) {
  return std::max(0.0, comm_s - comm.beside_part * kernel_s);
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
  std::vector<double> cut_parts;
  std::vector<double> layouts;
  std::vector<LoadedKernel> loads;
  std::vector<size_t> load_at;  // [load] op * kNumOpPasses + pass
  // Energy of what exchanges move beside computation; the clock does not go by
  // it, as contention was measured with its power inside.
  std::vector<double> hidden;
  const double streamed =
      options.device.hbm_bytes_per_s * options.device.hbm_sustained;
  double exchanged_s = 0;
  bool after_norm = false;
  for (const ModelOp& op : ops) {
    hidden.resize(kernels.size() + kNumOpPasses);
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      cut_parts.push_back(0);
      kernels.push_back(EstimateInPieces(options, own, model.causal, op,
                                         static_cast<OpPass>(pass),
                                         !model.layer_norm, &cut_parts.back()));
      loads.push_back(kernels.back().load);
      load_at.resize(loads.size(), kernels.size() - 1);
      casts.push_back(
          IsInFusedExperts(options, own, op, static_cast<OpPass>(pass))
              ? 0
              : CastSeconds(options, own, op, static_cast<OpPass>(pass),
                            after_norm));
      if (casts.back() > 0) {
        loads.push_back(Streaming(casts.back(), casts.back() * streamed));
      }
      const double copied = LayoutBytes(options, own, op, pass);
      layouts.push_back(StreamSeconds(options.device, copied));
      if (copied > 0) loads.push_back(Streaming(layouts.back(), copied));
      load_at.resize(loads.size(), kernels.size() - 1);
    }
    for (const OpComm& comm : op.comms) {
      const double seconds = CommSeconds(options, training, comm);
      const int pass = static_cast<int>(comm.pass);
      const size_t at = kernels.size() - kNumOpPasses + pass;
      double bytes = ExchangedBytes(options, training, comm);
      const double all_bytes = bytes;
      if (comm.beside_passes) {
        hidden[at] += HiddenJoules(options, bytes);
        continue;
      }
      const Overlap overlap = OverlapOf(options, op, comm);
      double alone_s = seconds;
      if (overlap.pieces > 0) {
        alone_s = seconds / overlap.pieces;
      } else if (overlap.beside && seconds > 0) {
        // Beside the kernel contention has its power inside, as measured.
        alone_s = AloneSeconds(comm, seconds, kernels[at].seconds);
        bytes *= alone_s / seconds;
      }
      exchanged_s += alone_s;
      loads.push_back(ExchangeLoad(options, alone_s, bytes));
      load_at.push_back(at);
      hidden[at] += HiddenJoules(options, all_bytes - bytes);
    }
    after_norm = op.kind == OpClass::kNorm;
  }
  // The passes of a block follow each other as long as the step lasts, so their
  // mean power decides. Exchanges are taken to draw what a copy of the same
  // bytes draws; what links and waiting multiprocessors draw is not known. What
  // a device waits outside of its passes is not counted, but for the host.
  const double idle_s = std::max(
      0.0, HostIdle(options, own, ops, kernels, casts, layouts) - exchanged_s);
  const double clock = options.silicon != nullptr && options.sustained
                           ? ClockUnder(options.device, loads, idle_s)
                           : 1;
  std::vector<double> joules = std::move(hidden);
  for (size_t index = 0; index < loads.size(); ++index) {
    joules[load_at[index]] += loads[index].Joules(clock);
  }
  for (size_t index = 0; index < ops.size(); ++index) {
    OpTime time;
    time.name = ops[index].name;
    double beside[kNumOpPasses] = {0, 0, 0};
    // Part of these that kernels move, not copy engines.
    double by_kernels[kNumOpPasses] = {0, 0, 0};
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      LowerClock(options.device, clock, &kernels[index * kNumOpPasses + pass]);
    }
    for (const OpComm& comm : ops[index].comms) {
      const int pass = static_cast<int>(comm.pass);
      const double seconds = CommSeconds(options, training, comm);
      if (comm.beside_passes) {
        time.beside_seconds[pass] += seconds;
        continue;
      }
      const Overlap overlap = OverlapOf(options, ops[index], comm);
      if (overlap.pieces > 0) {
        // The first piece comes before any of the product.
        time.comm_seconds[pass] += seconds / overlap.pieces;
        beside[pass] += seconds - seconds / overlap.pieces;
      } else if (overlap.beside) {
        const double kernel_s = kernels[index * kNumOpPasses + pass].seconds;
        // What its part of the computation does not hide is alone; several
        // exchanges may share all of it.
        const double alone_s =
            comm.beside_part < 1 ? AloneSeconds(comm, seconds, kernel_s) : 0;
        time.comm_seconds[pass] += alone_s;
        beside[pass] += seconds - alone_s;
        by_kernels[pass] += seconds - alone_s;
      } else {
        time.comm_seconds[pass] += seconds;
      }
    }
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      const size_t at = index * kNumOpPasses + pass;
      KernelEstimate& kernel = kernels[at];
      time.joules[pass] = joules[at];
      time.kernel_seconds[pass] = kernel.seconds;
      time.seconds[pass] = kernel.seconds + casts[at] + layouts[at];
      time.cast_seconds[pass] = casts[at];
      time.cut_seconds[pass] = cut_parts[at] * kernel.seconds;
      const LoadedKernel& load = kernel.load;
      if (load.least_s > 0 && load.clocked_s > 0) {
        time.held_seconds[pass] = std::max(
            0.0, kernel.seconds - load.steady_s - load.clocked_s / clock);
      }
      time.error[pass] = kernel.error;
      time.how[pass] = std::move(kernel.how);
      time.launches[pass] =
          HostLaunches(options, own, ops[index], static_cast<OpPass>(pass));
      time.host_seconds[pass] = options.launch_s * time.launches[pass];
      const double slower_s = ContentionSeconds(
          options.contention, kernel.seconds, by_kernels[pass]);
      time.slower_seconds[pass] = slower_s;
      time.comm_seconds[pass] +=
          slower_s + std::max(0.0, beside[pass] - kernel.seconds - slower_s);
    }
    times.push_back(std::move(time));
  }
  return times;
}

namespace {

// All-gather of a hop's parts at its receiver.
OpComm GatherOfHop(const ModelSpec& model, const TrainingSpec& training) {
  return {.kind = CommKind::kAllGather,
          .members = training.gathers_hops() ? training.tp : 1,
          .bytes = BoundaryBytes(model, training)};
}

}  // namespace

double GatherSeconds(const ModelSpec& model, const TrainingSpec& training,
                     const AnalyticOptions& options) {
  return training.slices *
         CommSeconds(options, training, GatherOfHop(model, training));
}

double OptimizerSeconds(const AnalyticOptions& options,
                        const TrainingSpec& training, double dense_parameters,
                        double expert_parameters) {
  const StageParameters all = {.dense = dense_parameters,
                               .expert = expert_parameters};
  double each = UpdateBytes(training);
  if (training.optimizer.is_muon()) {
    each = std::min(each, kClippedBytes + LeastMuonBytes(training));
  }
  const double own = PartOf(training, 1, all);
  return StreamSeconds(
      options.device, each * own + FrameworkBytes(options, training, own, all));
}

namespace {

// Muon's matrices, and all else by Adam.
double MuonStepSeconds(const AnalyticOptions& options,
                       const TrainingSpec& training,
                       const StageParameters& all) {
  StageParameters rest = {.dense = all.dense, .expert = all.expert};
  for (const StageMatrices& stage : all.matrices) {
    for (const WeightMatrix& matrix : stage.matrices) {
      (matrix.is_expert ? rest.expert : rest.dense) -= matrix.elements();
    }
  }
  double held = 0;
  const double seconds = MuonSeconds(options, training, all.matrices, &held);
  const double by_adam = PartOf(training, 1, rest);
  return seconds +
         StreamSeconds(
             options.device,
             UpdateBytes(training) * by_adam + kClippedBytes * held +
                 FrameworkBytes(options, training, by_adam + held, all));
}

}  // namespace

double MostUpdatedParameters(const ModelSpec& model,
                             const TrainingSpec& training,
                             const StageLayout& layout,
                             const std::vector<int>& rank_of_stage,
                             int directions) {
  return MostUpdatedParameters(Inventory(model, training), layout,
                               rank_of_stage, directions);
}

namespace {

// [rank] what one of its devices trains.
std::vector<StageParameters> ParametersOfRanks(
    const Inventory& inventory, const StageLayout& layout,
    const std::vector<int>& rank_of_stage, int directions) {
  const int last_rank =
      *std::max_element(rank_of_stage.begin(), rank_of_stage.end());
  std::vector<StageParameters> parameters(last_rank + 1);
  const TrainingSpec& training = inventory.training();
  const std::set<int> has_table = RanksWithTable(layout, rank_of_stage);
  // Layers that differ may stand in one run of layers; matrices are in the
  // order of the model.
  const bool one_by_one =
      inventory.model().layers_differ() || training.optimizer.is_muon();
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    const int rank = rank_of_stage[stage];
    StageMatrices matrices = {.stage = static_cast<int>(stage)};
    double dense = 0;
    double expert = 0;
    for (const StageBlock& block : layout.stages[stage]) {
      const int64_t alike = one_by_one ? 1 : block.count;
      for (int64_t at = 0; at < block.count; at += alike) {
        const double times = static_cast<double>(alike) * block.part;
        for (const ModelOp& op :
             inventory.Ops(block.kind, block.first_layer + at)) {
          if (op.is_frozen || (op.is_tied && has_table.contains(rank))) {
            continue;
          }
          (op.is_expert ? expert : dense) += times * op.parameters;
          if (!training.optimizer.is_muon()) continue;
          absl::c_move(MatricesOf(training, block.kind, op),
                       std::back_inserter(matrices.matrices));
        }
      }
    }
    const auto add = [&](StageParameters* all) {
      all->dense += dense;
      all->expert += expert;
      all->matrices.push_back(matrices);
    };
    add(&parameters[rank]);
    if (directions == 2) add(&parameters[last_rank - rank]);
  }
  return parameters;
}

}  // namespace

double MostUpdatedParameters(const Inventory& inventory,
                             const StageLayout& layout,
                             const std::vector<int>& rank_of_stage,
                             int directions) {
  double most = 0;
  for (const StageParameters& all :
       ParametersOfRanks(inventory, layout, rank_of_stage, directions)) {
    most = std::max(most, PartOf(inventory.training(), 1, all));
  }
  return most;
}

double AnalyticOptimizerSeconds(const BlockPrices& prices,
                                const StageLayout& layout,
                                const std::vector<int>& rank_of_stage,
                                int directions) {
  double most_s = 0;
  for (const StageParameters& all : ParametersOfRanks(
           prices.inventory(), layout, rank_of_stage, directions)) {
    const TrainingSpec& training = prices.inventory().training();
    most_s =
        std::max(most_s, training.optimizer.is_muon()
                             ? MuonStepSeconds(prices.options(), training, all)
                             : OptimizerSeconds(prices.options(), training,
                                                all.dense, all.expert));
  }
  return most_s;
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
  std::vector<PassExchange> gather;
  if (gather_s > 0) {
    const OpComm comm = GatherOfHop(model, training);
    gather.push_back(ExchangeOf(prices.options(), training, comm));
  }
  for (size_t stage = 0; stage < layout.stages.size(); ++stage) {
    StageCosts seconds;
    StageCosts joules;
    StageExchanges exchanges;
    int64_t layers = 0;
    double layers_before = 0;
    if (crosses(stage)) {
      seconds.forward_s += gather_s;
      AddExchanges(gather, training.slices, &exchanges.forward);
    }
    if (crosses(stage + 1)) {
      seconds.backward_input_s += gather_s;
      seconds.backward_full_s += gather_s;
      AddExchanges(gather, training.slices, &exchanges.backward_input);
    }
    const auto add = [&](const StageBlock& block, int64_t layer, double times) {
      const double count = times * training.slices;
      const BlockSeconds& sum = prices.Sum(block.kind, layer, recompute[stage]);
      seconds.forward_s += count * sum.passes[0];
      seconds.backward_input_s += count * sum.passes[1];
      seconds.backward_weight_s += count * sum.passes[2];
      seconds.backward_full_s += count * sum.full;
      joules.forward_s += count * sum.joules[0];
      joules.backward_input_s += count * sum.joules[1];
      joules.backward_weight_s += count * sum.joules[2];
      AddExchanges(sum.exchanges[0], count, &exchanges.forward);
      AddExchanges(sum.exchanges[1], count, &exchanges.backward_input);
      AddExchanges(sum.exchanges[2], count, &exchanges.backward_weight);
      // A frozen layer runs nothing again, but is one of those that may.
      const bool is_layer = IsLayer(block.kind);
      const double recomputed =
          is_layer ? training.RecomputedLayers(layers_before, times) : 0;
      if (is_layer) layers_before += times;
      if (sum.recompute > 0) {
        const double again = recomputed * training.slices;
        seconds.recompute_s += again * sum.recompute;
        joules.recompute_s += again * sum.recompute_joules;
        AddExchanges(sum.recomputed, again, &exchanges.recompute);
      }
      until_weight += count * sum.saved_until_weight;
      saved += count * (sum.saved_until_weight + sum.saved_until_backward);
    };
    for (const StageBlock& block : layout.stages[stage]) {
      // Layers that differ may stand in one run of layers.
      const int64_t alike = model.layers_differ() ? 1 : block.count;
      for (int64_t at = 0; at < block.count; at += alike) {
        add(block, block.first_layer + at,
            static_cast<double>(alike) * block.part);
      }
      layers += block.count;
    }
    seconds.backward_input_s += seconds.recompute_s;
    seconds.backward_full_s += seconds.recompute_s;
    // Only the host makes one pass of both other than the two.
    if (prices.options().launch_s == 0) seconds.backward_full_s = 0;
    AddExchanges(exchanges.recompute, 1, &exchanges.backward_input);
    exchanges.layers = static_cast<int>(std::max<int64_t>(1, layers));
    joules.backward_input_s += joules.recompute_s;
    costs.stages.push_back(seconds);
    if (prices.options().device.board_watts > 0) {
      costs.joules.push_back(joules);
    }
    costs.exchanges.push_back(std::move(exchanges));
  }
  costs.optimizer_s =
      AnalyticOptimizerSeconds(prices, layout, rank_of_stage, 1);
  costs.prediction_s = StreamSeconds(
      prices.options().device,
      kPredictionBytes *
          MostUpdatedParameters(prices.inventory(), layout, rank_of_stage, 1));
  costs.held_until_weight = saved > 0 ? std::min(1.0, until_weight / saved) : 1;
  return costs;
}

}  // namespace pipewright
