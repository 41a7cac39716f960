// The steps of Prepare; for sim/config only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/config/prepare.h"
#include "sim/config/prepare_draws.h"
#include "sim/config/run_config.h"
#include "sim/cost/analytic.h"
#include "sim/cost/pass_costs.h"
#include "sim/model/model.h"
#include "sim/model/stages.h"
#include "sim/program/group_paths.h"
#include "sim/program/lower.h"
#include "sim/program/network.h"
#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"
#include "sim/topology/registry.h"

namespace pipewright {

struct Program;

// Sizes once it is clear where they come from.
struct RunSizes {
  int pp = 1;
  int vpp = 1;
  int dp = 1;
  int tp = 1;
  int cp = 1;
  int microbatches = 1;
  int slices = 1;

  // Devices that hold the same parameters, over all replicas.
  int holders() const { return dp * cp; }
  // pp * dp * tp * cp; CheckDegrees has passed.
  int64_t devices() const;
};

// What defaults of a framework depend on besides sizes.
struct FrameworkFacts {
  bool has_experts = false;
  // Facts of the schedule.
  bool trains = true;
  bool flushes = true;
  int directions = 1;
  bool by_layer = true;   // neither joint passes nor copies
  bool offloads = false;  // unless the strategy says otherwise
};
// `read`: as of RankOfStage. Of a schedule that cannot be built, those of most.
FrameworkFacts FrameworkFactsOf(const RunConfig& config, const RunSizes& sizes,
                                const ModelSpec& model, const Schedule* read);

// What a run with a model leaves out of what was asked for. `zero`: ZeroStage.
void WarnOfGaps(const RunConfig& config, const RunSizes& sizes,
                const TrainingSpec& training, const Schedule& schedule,
                int zero, std::vector<std::string>* warnings);

// The links of a system as estimates see them.
AnalyticNetwork NetworkOf(const ShapeParams& shape);
// Members of groups whose exchanges are known to cross links.
GroupMembersOf MembersOf(const TrainingSpec& training);
// Tells estimates on how many nodes groups are, where devices of a rank or of
// groups of experts are not next to each other, and what they cross between
// them. `links`: none of them slow.
void PlaceGroups(const Network& links, const TrainingSpec& training,
                 AnalyticNetwork* network);

// What passes take: given, or measured (`profile`), or estimated, or else one
// unit each, with a warning unless the run measures them. Error: some but not
// all of F, B, W; a list of the wrong length; an estimate without what it
// needs.
absl::StatusOr<PreparedCosts> PrepareCosts(
    const RunConfig& config, const RunSizes& sizes, const PreparedModel* model,
    const PreparedNetwork& network, std::optional<PreparedProfile> profile,
    std::vector<double> slice_factor, RunContext* context,
    std::vector<std::string>* warnings);

// What of the costs follows once the schedule is there: what its R passes take
// off the backward, the step of both directions of a bidirectional one, noise
// and interference. Errors: those of TakeProfileEffects.
absl::Status FitToSchedule(const RunConfig& config,
                           const std::optional<PreparedModel>& model,
                           const PreparedNetwork& network,
                           const Schedule& schedule, absl::string_view engine,
                           PreparedCosts* costs,
                           std::vector<std::string>* warnings);

// The factor of each slice, empty where all cost the same: as given, or as the
// schedule cuts them, which then says how many there are. Warns where a file
// of several slices leaves it open.
absl::StatusOr<std::vector<double>> PrepareSlices(
    const RunConfig& config, const std::optional<ModelSpec>& model,
    RunSizes* sizes, std::vector<std::string>* warnings);

// Draws the lengths of a minibatch and packs them; nothing where none are
// given. Errors: a file that is not there, a packer that cannot, sizes and
// costs that lengths exclude.
absl::StatusOr<std::optional<PreparedSequences>> PrepareSequences(
    const RunConfig& config, RunContext* context);

// The configuration of the class of most microbatches: what they say in place
// of the strategy.
RunConfig WithSequences(const RunConfig& config,
                        const std::optional<PreparedSequences>& sequences);

// The schedules of the other classes, once the run's own is there, and the
// factors on the times of all of them. Errors: a schedule that some number of
// microbatches does not suit; kFailedPrecondition where replicas of unequal
// numbers would meet after every microbatch. `plan` may be null.
absl::Status FinishSequences(const RunConfig& config, const RunSizes& sizes,
                             const std::optional<ModelSpec>& model,
                             DrawPlan* plan, PreparedRun* run);

// Failures of a run with so many devices; nothing where none fails. Error: what
// a job that fails lacks, or a time of 0 where there must be some.
absl::StatusOr<std::optional<PreparedFailures>> PrepareFailures(
    const RunConfig& config, int64_t devices);

// LowerRun of a run with sequences.
absl::StatusOr<Program> LowerSequences(const PreparedRun& run, DrawPlan* plan);

// The sizes of the run: the configuration's, or those of `read`, the schedule
// of a file (null without one). Error: one that is missing, too large, or
// another than the file's.
absl::StatusOr<RunSizes> PrepareSizes(const RunConfig& config,
                                      const Schedule* read,
                                      RunContext* context);

// What follows from strategy.global_batch: dp where it is not given, and the
// microbatches; those in `sizes` (0: unknown) must agree. It must be given.
// Error: a batch that does not divide, with the nearest that do;
// devices that pp * tp * cp does not divide.
absl::Status TakeGlobalBatch(const RunConfig& config, RunContext* context,
                             RunSizes* sizes);

// Devices of a node of the given system, with what the configuration changes of
// it.
absl::StatusOr<int> DevicesOfNode(const RunConfig& config, RunContext* context);
// Its devices as it names them, "H100 SXM5 80GB"; "": it does not.
absl::StatusOr<std::string> DeviceOfNode(const RunConfig& config,
                                         RunContext* context);

// Tokens of a sample, the strategy's or the model's. Error: neither is given.
absl::StatusOr<int64_t> SequenceOf(const RunConfig& config,
                                   RunContext* context);

// Is any of F, B and W given?
bool GivesPassTimes(const RunConfig& config);

// `config` with what it leaves open, each with a note: WithTimes; 1f1b, or
// interleaved-1f1b with several chunks; of a model without pp one rank; with
// at most one degree as many replicas, or tensor ranks, as fill the nodes; of a
// model without a batch UsualBatch. A run that measures its times fills no node
// and takes no batch. Errors: a model or a system that
// cannot be read.
absl::StatusOr<RunConfig> WithDefaults(RunConfig config, RunContext* context);

// Does a schedule refuse the batch that WithDefaults has taken?
bool RefusesUsualBatch(const RunConfig& config, const absl::Status& status);
// Takes the nearest batch that the schedule of `config`, which has defaults,
// runs, and says so in the note. Errors: those of PrepareSizes, PrepareModel.
absl::Status TakeNearestBatch(RunContext* context, RunConfig* config);

// The schedule of a file, verified.
absl::StatusOr<std::shared_ptr<const Schedule>> ReadScheduleFile(
    const RunConfig& config, RunContext* context,
    std::vector<std::string>* warnings);

// `read`, or where it is null the schedule by its name, built and verified.
// What strategy.max_activations says of it is CheckLimit's. `stops`: that of
// ScheduleParams.
absl::StatusOr<PreparedSchedule> PrepareSchedule(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model, const PlanCosts& costs,
    std::shared_ptr<const Schedule> read, const std::function<bool()>& stops);

// Plans the copies of activations that the strategy or the schedule asks for,
// and says what they take; gives every O its FREE. To be called when the costs
// are known. Errors: copies without a time, bytes or PCIe; a schedule that
// keeps nothing, or has O passes of its own.
absl::Status PrepareOffload(const RunConfig& config, const RunSizes& sizes,
                            PreparedRun* run);

// Tells a planner that may choose copies of activations what they take and
// move, of stages as `placement` has them; nothing to others. Errors: as above,
// and with a strategy.offload of its own.
absl::Status AddCopyTimes(const RunConfig& config, const RunSizes& sizes,
                          const Placement& placement, const PreparedRun& run,
                          PlanCosts* plan);

// Error: factors that are not one a slice and one a microbatch.
absl::Status CheckAgainstSchedule(const RunConfig& config,
                                  const Schedule& schedule);

// Nothing without a limit.
std::optional<absl::Status> CheckLimit(const RunConfig& config,
                                       const Schedule& schedule,
                                       double held_until_weight);

// Where sizes are refused: what the schedule itself says of them, since it
// knows best (vpp 3 of 1f1b), or else `otherwise`.
absl::Status RefusalOfSizes(const RunConfig& config, const RunSizes& sizes,
                            const std::optional<ModelSpec>& model,
                            const absl::Status& otherwise);

// Which rank holds which stage, of `read` or, where it is null, of the
// schedule by name. Before the times are known that a planner needs, and
// without building it.
absl::StatusOr<std::vector<int>> RankOfStage(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model, const Schedule* read);

// Where the stages of a schedule stand that plans with its ranks' memory
// (ScheduleInfo::asks_for_room); nothing of others and of files.
absl::StatusOr<std::optional<Placement>> PlacementToPlan(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model);

// What planners see of them.
PlanCosts PlanCostsOf(const RunConfig& config, const RunSizes& sizes,
                      const PassCosts& costs, double hop_s);

// Modules below name fields by path ("strategy.vpp: 3 ..."); this adds where
// the field was given.
absl::Status Locate(const RunConfig& config, const absl::Status& status);

// The preset or config.json with the fields on top, or nothing where no model
// is given. Error: a field missing, a model that cannot be.
absl::StatusOr<std::optional<ModelSpec>> PrepareModel(const RunConfig& config,
                                                      RunContext* context);

// As configured; by default an estimated step is a whole one, where all ranks
// step together.
OptimizerMode OptimizerOf(const RunConfig& config, const Schedule& schedule);

// As configured; by default units where the schedule has them, else passes.
ShardBlocks ShardBlocksOf(const RunConfig& config, const Schedule& schedule);

// Error: strategy.optimizer_kind with what nobody runs it with.
absl::Status CheckOptimizerKind(const RunConfig& config);

// ZeRO's stage by strategy.data_parallel or strategy.zero. Error: they
// contradict each other.
absl::StatusOr<int> ZeroStage(const RunConfig& config);

// Degrees, precision, recomputation with their defaults, checked against the
// model where there is one.
absl::StatusOr<TrainingSpec> PrepareTraining(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model);

// Values of the rows that `names` are of, as bits. Error: a name that is none
// of them, or stands there twice.
absl::StatusOr<uint8_t> BitsOf(const RunConfig& config, const char* field,
                               const std::vector<std::string>& names,
                               const std::vector<ChoiceRow>& rows);

// Launches and exchanges of layers. Error: as BitsOf, for strategy.graph_parts.
absl::StatusOr<Execution> PrepareExecution(const RunConfig& config);

// How much slower each rank is, [rank], by slow.devices alone: as the slowest
// of its devices in any replica. Empty if none is named. Error: a device that
// has no rank here, that of the system.
absl::StatusOr<std::vector<double>> RankSlowness(const RunConfig& config,
                                                 const RunSizes& sizes,
                                                 RunContext* context);

// rank_of_stage[stage] and slowness[rank] matter for the balanced split. Error:
// layers that do not split, more than one of layers, layout and split.
absl::StatusOr<StageLayout> PrepareLayout(const RunConfig& config,
                                          const RunSizes& sizes,
                                          const ModelSpec& model,
                                          const TrainingSpec& training,
                                          const std::vector<int>& rank_of_stage,
                                          const std::vector<double>& slowness);

// Error: the bytes that a rank may hold are beyond what can be counted, naming
// the largest size that was given.
absl::Status CheckBytes(const RunConfig& config, const RunSizes& sizes,
                        const PreparedModel& model);

// What the model's file leaves out or open.
void AddModelNotes(const RunConfig& given, const ModelSpec& model,
                   std::vector<std::string>* warnings);

// Tokens of a microbatch; nothing where neither a model nor the strategy
// tells.
std::optional<double> MicrobatchTokens(const RunConfig& config,
                                       const std::optional<ModelSpec>& model);

// The tokens of one sequence and the part of a layer's work that is causal
// attention, from the model; both 0 where nothing tells.
SequenceShape SequenceShapeOf(const RunConfig& config,
                              const std::optional<ModelSpec>& model);

// Bytes of one transfer over a hop: as given, or, with a model, those that
// one device sends of a slice of a microbatch; 0 where nothing tells.
double PrepareHopBytes(const RunConfig& config,
                       const std::optional<PreparedModel>& model);

// Parameters of one device that the data-parallel replicas share, [stage].
// Experts, which fewer replicas share, count as much less as their ring is
// shorter. Frozen ones do not count, a tied table counts once a rank.
std::vector<double> TrainedParameters(const PreparedModel& model);
// The same with those that are frozen, which sharded weights are gathered of.
std::vector<double> StoredParameters(const PreparedModel& model);
// Bytes that ZeRO 1 gathers of the same.
std::vector<double> GatheredWeights(const PreparedModel& model);

// [stage][layer]; embedding and head go with the layer next to them.
std::vector<std::vector<LayerShare>> LayerShares(const PreparedModel& model);

// The gradient of one device's part of a table that embedding and output head
// share; 0 where they share none.
double TiedGradientBytes(const PreparedModel& model);

// An optimizer on the host: `run->lower.offload`, and what it does to
// `run->memory`. Error: one that the schedule, the system or the sizes do not
// allow.
absl::Status PrepareOptimizerOffload(const RunConfig& config,
                                     const RunSizes& sizes, PreparedRun* run);

// What the states of one device of a rank take on it and on its host, pinned:
// 16 bytes a parameter there, and on the device 12 S + 4 S of a subgroup of S
// that visits it, and the bf16 gradients of all that do.
OffloadedStates OptimizerHostBytes(const Schedule& schedule,
                                   const OptimizerOffload& offload, int rank);
// States of every rank, for memory; empty where the states are on the device.
std::vector<OffloadedStates> OffloadedStatesOf(const PreparedRun& run);
void TakeOffloadedStates(PreparedRun* run);

// The limit of the host's memory, where anything is kept there. To be called
// when that is known.
void LimitHostMemory(const RunConfig& config, PreparedRun* run);

// Bytes of a parameter on its way to those that gather it, layer by layer.
double GatherBytesOf(const StrategyChoice& strategy);

// What copies of a stage exchange: kind, bytes and blocks of `run->lower`, from
// the schedule and the model that are there. Warns where gradients are not
// synchronised. Error: bytes that nothing tells.
// What a layer has of its stage, and how layers are gathered and reduced
// (LowerOptions::layers); gathered in the type that the configuration says.
// Error: kInvalidArgument without a model.
absl::Status PrepareLayers(const RunConfig& config,
                           const TrainingSpec& training, PreparedRun* run);

absl::Status PrepareDataParallel(const RunConfig& config, const RunSizes& sizes,
                                 PreparedRun* run);

// A warning of PrepareNetwork, which does not know what was measured.
inline constexpr char kFreeSynchronisation[] =
    "no system is given: the bytes of gradient synchronisation cost nothing";

// What the profile measured of copies with the host and of messages between two
// GPUs, for a system of its device; null without. What the configuration gives
// of a link stands. `params` get PCIe if they have none, and whether both
// directions of a switch share a link.
std::shared_ptr<MeasuredPaths> MeasuredPathsOf(
    const RunConfig& config, const std::optional<PreparedProfile>& profile,
    ShapeParams* params);
// Puts them on the network's links, and says what was measured and what
// `system` has without. Null: nothing.
void TakeMeasuredPaths(std::shared_ptr<MeasuredPaths> paths,
                       const Cluster& system, PreparedNetwork* network);
// What it measured of the steps, casts and memory of a host and of the device,
// in place of what `params` have.
void TakeMeasuredHost(const RunConfig& config,
                      const std::optional<PreparedProfile>& profile,
                      ShapeParams* params,
                      std::vector<MeasuredNumber>* numbers);
// Copies and messages that the profile has and the run makes, but does not take
// the times of.
void WarnOfUnusedMeasurements(const RunConfig& config, PreparedRun* run);

// Collectives of gradients and parameters as the profile has them, where their
// members were measured: one device a rank, as many of them and, on a system of
// the profile's device, on as many nodes. A pure delay that was given stands.
// `run->lower` must be complete. Warns where the profile has such collectives
// and the run takes none, or others sizes than those measured.
void TakeMeasuredCollectives(const RunConfig& config, const RunSizes& sizes,
                             PreparedRun* run);

// Bytes of the gradients of each stage, empty where nothing tells.
std::vector<double> GradientBytes(const RunConfig& config,
                                  const RunSizes& sizes,
                                  const std::optional<PreparedModel>& model);
// What these gradients weigh as parameters, relative to them.
double ParametersPerGradientByte(const TrainingSpec& training);

// Error: more devices than any system has.
absl::Status CheckDegrees(const RunConfig& config, const RunSizes& sizes);

// system.nodes, or the smallest number that holds all ranks and the devices
// that are named one by one (empty: none are). Error: too few devices, or a
// number that the degrees do not divide. Warns where devices stay idle.
absl::StatusOr<int> NodesFor(const RunConfig& config, const RunSizes& sizes,
                             int devices_per_node,
                             const std::vector<int>& devices,
                             std::vector<std::string>* warnings);

// Where the device that is estimated is not the one that the system has.
void WarnOfDevice(const RunConfig& config, const PreparedNetwork& network,
                  const PreparedCosts& costs,
                  std::vector<std::string>* warnings);

// The memory of every rank and what a device has: as given, of the device
// that costs.analytic names, of the system's, or of the profile's. Without a
// system, what was measured on a CPU has no context of CUDA beside it.
MemoryReport PrepareMemory(const RunConfig& config, const PreparedModel& model,
                           const PreparedNetwork& network,
                           const PreparedCosts& costs,
                           std::shared_ptr<const Schedule> schedule);

// F, with `again` R, B and W of one microbatch, with stages as `placement` has
// them. `of`: so many in all, for which a stage may have buffers.
std::shared_ptr<const Schedule> OneMicrobatch(const Placement& placement,
                                              int of, bool again);

// Tells a planner what each rank has room for, if a device's memory is known:
// beside what one microbatch takes, of its stages as `placement` has them.
void AddRoom(const RunConfig& config, const PreparedModel& model,
             const PreparedNetwork& network, const PreparedCosts& costs,
             const Placement& placement, PlanCosts* plan);

// `profile`: where neither a system nor costs.p2p is given, a hop takes what it
// measured. Error: p2p with a system, a system too small, no bytes for its
// links.
absl::StatusOr<PreparedNetwork> PrepareNetwork(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<PreparedProfile>& profile, double hop_bytes,
    absl::string_view engine, RunContext* context,
    std::vector<std::string>* warnings);

// prepare_classes.cc: a run whose strategy.dp_classes are given. `prepare_one`
// prepares a run whose replicas are all alike.
absl::StatusOr<PreparedRun> PrepareClasses(
    const RunConfig& config,
    const std::function<absl::StatusOr<PreparedRun>(const RunConfig&)>&
        prepare_one);

}  // namespace pipewright
