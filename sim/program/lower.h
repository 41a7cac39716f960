// Schedule, costs and strategy in, Program out: small named steps, each of
// which adds one thing.
#pragma once

#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/cost/interference.h"
#include "sim/cost/jitter.h"
#include "sim/cost/pass_costs.h"
#include "sim/program/data_parallel.h"
#include "sim/program/network.h"
#include "sim/program/optimizer_plan.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// Layers as the unit of sharding: what FSDP2 and ODC gather and reduce at a
// time. Of a stage, its layers share its time and its bytes.
//
// Sources: FSDP2, pytorch torch/distributed/fsdp/_fully_shard; ZeRO++ (hpZ),
// arXiv 2306.10209; ODC, arXiv 2601.19362 and its repository sail-sg/odc.

// Share of one layer, relative to the others of its stage.
struct LayerShare {
  double seconds = 1;
  double parameters = 1;  // that are trained, and reduced
  double stored = 1;      // and frozen ones, which are gathered too
};

// [stage]: how many layers stand in front of the first that has anything
// trained. No gradient flows there, so no backward gathers their weights.
std::vector<int> LayersInFront(
    const std::vector<std::vector<LayerShare>>& stages);

struct LayerOptions {
  std::vector<std::vector<LayerShare>> stages;  // [stage][layer]
  // False: what a forward has gathered stays until its layer's next backward
  // has run.
  bool reshard_after_forward = true;
  // Replicas over which parameters, gradients and states are sharded; every
  // such part of the replicas holds all of them (HSDP). 0: all.
  int shard_group = 0;
  // Replicas among which the backward gathers (ZeRO++ hpZ); of odc every
  // gather but one a minibatch. 0: as many as are sharded over.
  int near_group = 0;
  // Gradients are reduced with the last microbatch alone, and kept whole until
  // then.
  bool reduces_once = false;
  // Gathers and reductions take turns on one stream.
  bool one_stream = true;
  // Layers are copied out of what a gather has brought, and their gradients
  // into the buffer that is reduced, by the device itself, which reads and
  // writes so many bytes a second; 0: such copies take no time.
  double copies_bytes_per_s = 0;
  // Bytes of a gradient as a backward makes it, over its bytes in that buffer.
  double made_part = 1;

  // Options of odc alone.
  // Every pull and push a flow of its own, peer after peer; else those inside a
  // node are one activity, and those to other nodes are one.
  bool pulls_apart = false;
  // Between two looks of an owner's process at its requests.
  double poll_s = 100e-6;
  // Bytes of gradients that a client's buffer at an owner takes; 0: no limit.
  double push_buffer_bytes = 0;
  // Bytes of gradients a second that an owner adds; 0: at once.
  double adds_bytes_per_s = 0;
};

struct Program;

enum class OptimizerMode {
  kNone,           // iterations follow each other with no barrier
  kSynchronised,   // gradient norm over all ranks, then every rank steps
  kPostValidated,  // every rank steps on what it knows, checked afterwards
                   // (zero-bubble paper, sec. 4)
};

// Where in the next warm-up a post-validated step is checked.
enum class ValidationPlace {
  kNoWait,    // where no rank waits for one above it
  kReleased,  // as the zero-bubble paper's released code: later, and at the
              // price of a bubble on several chunks
};

// What fsdp takes for one block of work (and zero2, of backwards).
enum class ShardBlocks {
  kPass,   // every pass
  kRun,    // as many passes of one chunk and direction as follow each other
  kUnit,   // the passes of one chunk and direction of a unit of microbatches
           // (Schedule::unit): breadth-first pipelines (arXiv 2211.05953),
           // ZeroPP (arXiv 2402.03791)
  kLayer,  // every layer of every pass (LayerOptions); of fsdp, and always odc
};

// An optimizer whose states are on the host, stepped subgroup by subgroup. Of
// one device of a rank; rates are parameters a second.
struct OptimizerOffload {
  OptimizerPlacement placement = OptimizerPlacement::kGpu;
  GradientFlush flush = GradientFlush::kBlocking;
  // That a rank steps of each stage, [stage].
  std::vector<double> parameters;
  double subgroup_size = 1e8;
  double ratio = 1;  // share of the subgroups that the host has
  int stride = 0;    // for deep-optimizer-states
  double adam_bytes = 28;
  double cast_bytes = 8;
  double adam_rate = 0;   // 0: no limit but memory
  double cast_rate = 0;   // the same
  double flush_rate = 0;  // for a blocking flush
  double device_adam_rate = 0;
  double device_cast_rate = 0;  // 0: as it steps
  // Host operations at once: 1 casts between two steps of the host.
  int slots = 2;
  // False: a subgroup behind the last trigger stays on the device, as the
  // authors' code leaves it.
  bool flush_last = true;

  bool active() const { return placement != OptimizerPlacement::kGpu; }
};

struct LowerOptions {
  PassCosts costs;
  Network network;
  WaitRule wait_rule = WaitRule::kBuffered;
  // Activations, or their gradient, of one hop; never divided.
  double hop_bytes = 0;
  DataParallel data_parallel = DataParallel::kNone;
  ShardBlocks shard_blocks = ShardBlocks::kPass;
  // Options of ShardBlocks::kLayer; others have `stages` alone, if layers are
  // frozen.
  LayerOptions layers;
  int replicas = 1;  // data-parallel degree
  // Bytes of one stage, [stage]: gradients for the reduction, parameters for
  // the gather.
  std::vector<double> gradient_bytes;
  std::vector<double> parameter_bytes;
  // Updates that a synchronised step gathers before it, [stage]; empty: none.
  std::vector<double> update_bytes;
  // Bytes of the gradient of the table that embedding and output head share;
  // 0: they share none. See SumsTable.
  double tied_bytes = 0;
  // False: reductions wait for the last pass of the rank's whole iteration.
  // SYNC passes stand where they stand.
  bool overlap_gradients = true;
  // Bytes of the activations of one microbatch that O and L move, [stage];
  // empty: their times in `costs` stand.
  std::vector<double> activation_bytes;
  bool copies_in_turn = false;  // Program::copies_in_turn
  OptimizerMode optimizer = OptimizerMode::kNone;
  // Noise on passes and optimizer steps; null: none. With it no period is
  // constant.
  std::shared_ptr<const Jitter> jitter;
  OptimizerOffload offload;
  // A pass takes so many times as long while a collective runs beside it that
  // comes with every pass (lower_beside.cc); 1: they do not meet.
  double contention = 1;
  // How passes and what runs beside them slow each other down; null: not.
  std::shared_ptr<const InterferenceMatrix> interference;
  ValidationPlace validation = ValidationPlace::kNoWait;
  // Iterations, ascending, whose step fails its check because the norm is too
  // large. Of a post-validated one the next warm-up is thrown away and run
  // again; of superoffload the host undoes the step and repeats it.
  std::vector<int> failing_steps;
  // 0: as many as the period needs, at most 8 after the last failing step;
  // with jitter as many as that limit.
  int iterations = 0;
};

// If the first and the last stage of a pipeline are on one rank, there is one
// table, of the first stage. Else both hold a copy and sum its gradients once
// an iteration, before they step alike (Megatron-LM,
// megatron/core/distributed/finalize_model_grads.py). True of the latter, if
// gradients are reduced or stepped with. A schedule that steps after every
// backward has no such point in time, and its copies part.
bool SumsTable(const Schedule& schedule, const LowerOptions& options);

// Devices that hold the same part of a rank's parameters, over all replicas.
int HoldersOf(const LowerOptions& options);

// Who steps which subgroup of `rank`. The offload is active, with parameters
// of each stage.
double ParametersOf(const Schedule& schedule, const OptimizerOffload& offload,
                    int rank);
SubgroupPlan PlanOf(const Schedule& schedule, const OptimizerOffload& offload,
                    int rank);

// `schedule` must have passed VerifySchedule. Errors: kInvalidArgument where
// options do not fit (a list of the wrong length, a mapping of another size).
absl::StatusOr<Program> Lower(std::shared_ptr<const Schedule> schedule,
                              const LowerOptions& options);

// Are weights gathered layer by layer?
bool GathersLayers(const LowerOptions& options);

}  // namespace pipewright
