// RunConfig -> everything that Lower and an engine need: presets resolved,
// defaults filled in, sizes checked against each other, the schedule built
// (or read) and verified. Four parts, each a value that prints: the network,
// the costs, the schedule, the memory.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/prepare_profile.h"
#include "sim/config/prepare_slow.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"
#include "sim/cost/analytic.h"
#include "sim/cost/goodput.h"
#include "sim/model/lengths.h"
#include "sim/model/model.h"
#include "sim/model/packer.h"
#include "sim/model/pass_work.h"
#include "sim/model/stages.h"
#include "sim/model/training.h"
#include "sim/program/activation_plan.h"
#include "sim/program/lower.h"
#include "sim/report/memory_report.h"
#include "sim/report/profile_report.h"
#include "sim/schedule/schedule.h"
#include "sim/topology/cluster.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"

namespace pipewright {

// A model on the stages of a run.
struct PreparedModel {
  ModelSpec spec;
  TrainingSpec training;
  StageLayout layout;
  std::vector<int> rank_of_stage;       // of replica a
  std::shared_ptr<SharedModel> shared;  // of spec and training

  const std::vector<ModelOp>& Ops(BlockKind kind, int64_t layer) const {
    return shared->inventory().Ops(kind, layer);
  }
};

// A field that was given and changes nothing in the run.
struct UnusedField {
  std::string path;     // "costs.p2p"
  std::string warning;  // "run.yaml:3: costs.p2p has no effect ..."
};

// What lies between the ranks: a delay, or the links of a system.
struct PreparedNetwork {
  Network links;
  std::string name;    // "hop 0.601 ms", "dgx-h100, 2 nodes (simgrid)", "free"
  std::string system;  // its name, "" without one
  double hop_s = 0;    // of one transfer, the slowest hop; what planners see
  bool measured_hop = false;         // the delay of hops is the profile's
  std::optional<ShapeParams> shape;  // of the system, where there is one

  std::optional<SlowLinks> slow;  // in `links` already
  // In `links` and `shape` already, in place of the system's.
  std::vector<MeasuredNumber> measured;

  const ShapeParams* system_shape() const { return shape ? &*shape : nullptr; }
};

// What passes and steps take, and where that is from.
struct PreparedCosts {
  PassCosts passes;
  std::optional<AnalyticOptions> analytic;    // what they are estimated of
  std::shared_ptr<const BlockPrices> prices;  // where they are estimated
  std::optional<PreparedProfile> profile;     // what they were measured with
  std::optional<DeviceSpec> device;  // whose peaks count; the system's else
  // Nobody says what passes take: all times of the run are units of one pass
  // where they are called seconds.
  bool in_units = false;
  // Collectives of gradients and parameters, "all_reduce over 4"; "": none.
  std::string measured_collectives;
  std::shared_ptr<const Jitter> jitter;                    // null: none
  std::shared_ptr<const InterferenceMatrix> interference;  // null: none

  bool follow_model() const { return analytic || profile; }
};

struct PreparedSchedule {
  std::shared_ptr<const Schedule> lowered;  // what Lower takes
  // As built or read, (X&Y) blocks in their place: what is printed.
  std::shared_ptr<const Schedule> written;
  std::map<std::string, std::string> params;  // given and implied ones
  // Does a rank hold more than strategy.max_activations? Nothing without a
  // limit; kResourceExhausted where it is exceeded.
  std::optional<absl::Status> limit;
};

// Copies of activations to the host and back.
struct PreparedOffload {
  OffloadMode mode = OffloadMode::kNone;  // kNone: the O and L of a file
  // PipeOffload's k, by stage: O and L over F, B and W.
  double least_ratio = 0;
  double most_ratio = 0;
  bool has_ratio = false;  // passes take time
  // Devices of this run that may use a PCIe switch at a time; 1: each has its
  // own, or nobody knows. And are they those of several ranks or replicas?
  int devices_on_switch = 1;
  bool ranks_share = false;
  // What copies take of the activations of a stage, [stage]; empty: all.
  std::vector<double> moved_part;
  std::vector<RankOffload> ranks;    // empty where nothing was planned
  std::map<int, SwitchTurns> turns;  // as in OffloadPlan
};

// A minibatch of samples of different lengths, dealt out to the data-parallel
// replicas.
struct PreparedSequences {
  LengthSource source;
  int64_t seed = 0;
  bool drawn = false;   // of a list: by chance, not its first lengths
  PackRequest request;  // the lengths drawn, the packer and its limits
  Packing packing;      // [replica][microbatch]
  int samples = 0;      // of all replicas
  int64_t tokens = 0;
  // The sequence of equal samples whose tokens cost as much attention as these
  // do: sum of squares over sum.
  int64_t mean_sequence = 0;
  // The microbatch that pass times and memory are of.
  int64_t base_sequence = 0;
  int base_samples = 1;
  bool has_model = false;
  PassWorks works;
  // Replicas whose microbatches take the same times share a class; the first
  // has most microbatches.
  std::vector<MicrobatchFactors> classes;
  std::vector<int> class_of_replica;
  // [class]; null until the schedules are built, and where it is the run's.
  std::vector<std::shared_ptr<const Schedule>> schedules;

  int most_microbatches() const {
    return static_cast<int>(classes.front().forward.size());
  }
  int least_microbatches() const;
};

// In the warning that memory is that of another microbatch than the longest.
inline constexpr char kMemoryOfBase[] = ": memory is that of microbatches of ";

struct PreparedRun;

// Devices that fail, and the stretches of time that are drawn of it.
struct PreparedFailures {
  FailingJob job;
  bool interval_given = true;  // or Daly's
  double horizon_s = 0;
  int seeds = 0;
  uint64_t seed = 0;
};

// Data-parallel replicas that run the same.
struct PreparedClass {
  int replicas = 1;
  double slower = 1;   // factor on its times
  int slow_rank = -1;  // that the factor concerns; -1: all
  // As if all replicas of the run were like these.
  std::shared_ptr<const PreparedRun> run;
};

struct PreparedRun {
  // Compiled once, not by everyone who has one: they are long.
  PreparedRun();
  PreparedRun(const PreparedRun&);
  PreparedRun(PreparedRun&&) noexcept;
  PreparedRun& operator=(const PreparedRun&);
  PreparedRun& operator=(PreparedRun&&) noexcept;
  ~PreparedRun();

  RunConfig config;  // as given, with the sizes of the strategy filled in
  std::string engine;
  std::string model;  // preset, file, "custom", or "" without one
  std::optional<PreparedModel> prepared_model;
  PreparedNetwork network;
  PreparedCosts costs;
  PreparedSchedule schedule;
  std::optional<PreparedOffload> offload;  // where the schedule has O passes
  std::optional<PreparedSequences> sequences;  // where lengths are given
  // Memory of every rank, with a model; whether it fits is MemoryVerdict's to
  // say.
  std::optional<MemoryReport> memory;
  LowerOptions lower;  // what Lower takes of network, costs and strategy
  std::optional<double> tokens;  // of an iteration, all replicas; if known
  // Where not all replicas run the same, else empty: the first of them have the
  // first class and so on. The rest of this PreparedRun is then of the first
  // class, but `memory` of the one that needs most.
  std::vector<PreparedClass> classes;
  std::optional<SlowDevices> slow;          // where the configuration has some
  std::optional<PreparedFailures> failing;  // where devices fail
  std::vector<UnusedField> unused;
  std::vector<std::string> warnings;  // those of `unused` too

  // Sizes in `memory`, null without one.
  const ScheduleMemory* memory_of_ranks() const {
    return memory ? memory->memory.get() : nullptr;
  }
  // Are there slow devices or links that a seed decides on?
  bool DrawsSlow() const {
    return (slow && slow->of.law) || (network.slow && network.slow->of.law);
  }
  absl::Status limit() const {
    return schedule.limit.value_or(absl::OkStatus());
  }
};

// Makes a prepared run another draw: lengths and noise with their seeds `more`
// further on. Its memory, tokens apart, and its warnings stay those of the
// first. Errors: a draw that the packer or the schedule cannot take.
absl::Status TakeDraw(int64_t more, PreparedRun* run);

// What the run is simulated as: of every class lowered, and joined. Errors:
// those of Lower and JoinClasses.
absl::StatusOr<Program> LowerRun(const PreparedRun& run);

// OK, or kInvalidArgument with the field: `verb` runs one order of passes, and
// strategy.dp_classes give several.
absl::Status RefuseClasses(const RunConfig& config, absl::string_view verb);

// For people and tests: a line a fact, sizes and times rounded as in reports.
std::string ToString(const PreparedNetwork& network);
std::string ToString(const PreparedCosts& costs);
std::string ToString(const PreparedSchedule& schedule);
std::string ToString(const MemoryReport& memory);
// All parts, and what belongs to none.
std::string ToString(const PreparedRun& run);

// Makes the memory of a prepared run, where it has any, that of another
// framework than Megatron-LM; its limit stays.
void TakeMemoryFramework(std::shared_ptr<const MemoryFramework> framework,
                         PreparedRun* run);

// `context`: what this run shares with others. Errors: kInvalidArgument or
// kNotFound with field, value and what is allowed; kFailedPrecondition for a
// schedule file that is no schedule; kResourceExhausted where a planner cannot
// meet strategy.max_activations. A fixed schedule that exceeds it is prepared
// all the same: see `limit`.
absl::StatusOr<PreparedRun> Prepare(const RunConfig& config,
                                    RunContext* context);
// The same of a run that shares nothing.
absl::StatusOr<PreparedRun> Prepare(const RunConfig& config);

// What strategy.data_parallel or strategy.zero says, none where neither is
// given.
DataParallel DataParallelOf(const StrategyChoice& strategy);

// The rule of the optimizer with its defaults.
OptimizerRule OptimizerRuleOf(const StrategyChoice& strategy);
// Can the rule step what the mode leaves to a device?
bool TakesSharding(const OptimizerRule& rule, DataParallel mode);

// Is sequence parallelism on: as given, or as strategy.framework has it?
bool SequenceParallelOf(const StrategyChoice& strategy, int tp,
                        bool has_experts);

// What a framework's defaults make of fields that depend on sizes.
bool KeepsGatheredOf(const StrategyChoice& strategy, bool sequence_parallel);
StageBuffers StageBuffersOf(const StrategyChoice& strategy, int pp);
ContextExchange ContextOf(const StrategyChoice& strategy, int cp);

// Tensor parallelism of experts; 0: that of the rest. torchtitan has experts on
// ranks of their own, or split by tp (b5bcd76c, torchtitan/distributed/
// parallel_dims.py).
int ExpertTensorOf(const StrategyChoice& strategy, int ep);

// Is any field of a model given?
bool GivesModel(const ModelChoice& model);

// Does nobody say what passes take, as WithTimes leaves it? Each is one unit
// then.
bool InUnits(const RunConfig& config);

// `config`, estimated if it has a model, no times, and a system whose device is
// known. Errors: those of reading a system.
absl::StatusOr<RunConfig> WithTimes(RunConfig config, RunContext* context);
// Error: kInvalidArgument for a model whose passes nothing times, and for
// seconds (hops, links, steps) beside passes of one unit.
absl::Status CheckTimed(const RunConfig& config, RunContext* context);

// The global batch of a model that none is given for, in samples that the
// devices of the system divide: at most the 4 Mi tokens that Llama 2 took
// (arXiv 2307.09288, table 1). Error: no model.
inline constexpr char kOfUsualBatch[] =
    ", of a step of about 4 million tokens as Llama 2 took (";
absl::StatusOr<int64_t> UsualBatch(const RunConfig& config,
                                   RunContext* context);

// strategy.global_batch in samples; it must be given. Error: tokens that the
// sequence does not divide.
absl::StatusOr<int64_t> GlobalBatchSamples(const RunConfig& config,
                                           RunContext* context);

}  // namespace pipewright
