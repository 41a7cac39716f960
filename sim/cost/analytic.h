// The analytic cost model: pass times of every stage on a device that is not at
// hand, from the inventory of operations (sim/model/ops.h), the device's data
// sheet and efficiency curves by operation and size. It knows no schedule and
// no training run; each constant names the data that it is fitted to.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "sim/cost/collective_time.h"
#include "sim/cost/device.h"
#include "sim/cost/framework_kernels.h"
#include "sim/cost/pass_costs.h"
#include "sim/model/stages.h"

namespace pipewright {

// What a group crosses between its nodes beside its network cards (trunks,
// links between sites, cables of a torus), and without NVLink inside of them,
// while all groups of its kind do. 0: nothing.
struct BetweenNodes {
  double ring_s = 0;  // a byte of what goes round the group's rings
  // A byte of what each sends to each on other nodes; without NVLink to all.
  double pair_s = 0;
  double ring_latency_s = 0;  // for all steps of one way round
  double latency_s = 0;       // along the longest way
  friend bool operator==(const BetweenNodes&, const BetweenNodes&) = default;
};

// The links that the devices of one pipeline rank, or of one group of
// experts, talk over; one direction.
struct AnalyticNetwork {
  int devices_per_node = 8;
  // Without NVLink a device's share of its PCIe switch, for groups whose links
  // `between` does not know.
  double nvlink_bytes_per_s = 0;
  double nic_bytes_per_s = 0;  // a device's share
  // [CommGroup] nodes that a group is on; 0: as many as it fills where the
  // devices of a tensor-parallel group are neighbours, those of a context group
  // stand tp apart, those of an expert group tp * cp at most.
  std::array<int, 3> nodes_of_group = {};
  std::array<BetweenNodes, 3> between = {};  // [CommGroup]
  bool has_nvlink = true;
  friend bool operator==(const AnalyticNetwork&,
                         const AnalyticNetwork&) = default;
};

class Silicon;

// What a device draws while it exchanges: no more than when it is idle; what a
// copy of the same bytes draws; or all that the board gives. The one in the
// middle is assumed, the others are the ends of what it may be.
enum class ExchangePower : uint8_t { kNone, kCopy, kLimit };

struct AnalyticOptions {
  DeviceSpec device;
  AnalyticNetwork network;
  // Tables of measured rates; null: efficiency curves alone.
  std::shared_ptr<const Silicon> silicon;
  // Measured rates at the clock of a lasting load, or of a short run.
  bool sustained = true;
  FrameworkKernels kernels = FrameworkKernels::kFused;
  // What the host takes to launch a kernel; 0: nothing.
  double launch_s = 0;
  ExchangePower exchange_power = ExchangePower::kCopy;
  // A pass beside a collective over the same alone (contention.h); 1: alike.
  double contention = 1;
  // The energy of a FLOP in `device` is that of the slowest device of the job:
  // so many times the median one's (EnergyOfSlowest).
  double slowest_energy = 1;
  // The same in the worst cluster, for the interval.
  double most_slowest_energy = 1;
  friend bool operator==(const AnalyticOptions&,
                         const AnalyticOptions&) = default;
};

// One op of one slice of a microbatch, for people and tests.
struct OpTime {
  std::string name;
  double seconds[kNumOpPasses] = {0, 0, 0};  // computing
  // Part of them in the kernel itself, behind which exchanges hide.
  double kernel_seconds[kNumOpPasses] = {0, 0, 0};
  double comm_seconds[kNumOpPasses] = {0, 0, 0};  // and not hidden by it
  // Parts of `seconds`: casts, and what groups wait for the host to start them.
  double cast_seconds[kNumOpPasses] = {0, 0, 0};
  double held_seconds[kNumOpPasses] = {0, 0, 0};
  // And what cutting it into pieces costs (EstimateInPieces in op_time.h).
  double cut_seconds[kNumOpPasses] = {0, 0, 0};
  // Part of `comm_seconds` by which exchanges beside the computation slow it
  // down.
  double slower_seconds[kNumOpPasses] = {0, 0, 0};
  // Exchanging beside the passes of another microbatch.
  double beside_seconds[kNumOpPasses] = {0, 0, 0};
  // Energy above the idle power's, exchanges included; 0 where the device's
  // power is not known.
  double joules[kNumOpPasses] = {0, 0, 0};
  // The host's: launches (host_time.h), and what they take.
  double launches[kNumOpPasses] = {0, 0, 0};
  double host_seconds[kNumOpPasses] = {0, 0, 0};
  // As KernelEstimate (op_time.h) has them.
  double error[kNumOpPasses] = {0, 0, 0};
  std::string how[kNumOpPasses];
};

std::vector<OpTime> BlockTimes(const ModelSpec& model,
                               const TrainingSpec& training,
                               const AnalyticOptions& options, BlockKind kind,
                               int64_t layer);

// Pass times of one microbatch (all its slices) through each stage. Times of
// recomputed ops stand in recompute_s and are part of backward_input_s; so does
// their energy.
// optimizer_s is that of the slowest rank.
PassCosts AnalyticCosts(const ModelSpec& model, const TrainingSpec& training,
                        const AnalyticOptions& options,
                        const StageLayout& layout,
                        const std::vector<int>& rank_of_stage);

// How an exchange runs inside its pass: beside the product or by itself; in so
// many pieces, sent by copy engines, or (0) as a whole, by kernels.
struct Overlap {
  bool beside = false;
  int pieces = 0;
};
Overlap OverlapOf(const AnalyticOptions& options, const ModelOp& op,
                  const OpComm& comm);
// What of an exchange of `comm_s` that runs beside a kernel of `kernel_s` the
// kernel does not hide.
double AloneSeconds(const OpComm& comm, double comm_s, double kernel_s);
// Into how many pieces exchanges cut the product of a pass; 1: not at all.
int PiecesOf(const AnalyticOptions& options, const ModelOp& op, OpPass pass);

// The members of an exchange as NCCL's tuner sees them.
NcclGroup NcclGroupOf(const AnalyticOptions& options,
                      const TrainingSpec& training, const OpComm& comm);

// The collective that an exchange is; nothing of an all-to-all and of the ring
// of context parallelism, which are sends and receives.
std::optional<CollectiveKind> CollectiveOf(CommKind kind);

// Bytes that an exchange reads and writes in the memory of a device: what the
// device sends and what it receives. This is the least; algorithms of NCCL with
// buffers between devices read and write more.
double ExchangedBytes(const AnalyticOptions& options,
                      const TrainingSpec& training, const OpComm& comm);

// The time of one exchange inside a pass on the network.
double CommSeconds(const AnalyticOptions& options, const TrainingSpec& training,
                   const OpComm& comm);
// What of it one without bytes takes as well.
double StartSeconds(const AnalyticOptions& options,
                    const TrainingSpec& training, const OpComm& comm);

// The same for the gather after a hop, of all slices of a microbatch; 0 where
// there is none (TrainingSpec::gathers_hops).
double GatherSeconds(const ModelSpec& model, const TrainingSpec& training,
                     const AnalyticOptions& options);

// Parameters that the busiest rank updates on one device in an optimizer step.
// With 2 `directions` each rank updates the stages of both: its own and those
// of the rank opposite.
double MostUpdatedParameters(const ModelSpec& model,
                             const TrainingSpec& training,
                             const StageLayout& layout,
                             const std::vector<int>& rank_of_stage,
                             int directions);

// A step of a device with these parameters: Adam over those that it updates,
// and what a framework does around it with gradients and weights. With `fused`
// kernels that is Megatron-LM, else PyTorch.
double OptimizerSeconds(const AnalyticOptions& options,
                        const TrainingSpec& training, double dense_parameters,
                        double expert_parameters);

}  // namespace pipewright
