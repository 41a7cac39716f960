// The steps of Prepare; for sim/config only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/cost/analytic.h"
#include "sim/cost/pass_costs.h"
#include "sim/model/model.h"
#include "sim/model/stages.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/params.h"
#include "sim/schedule/schedule.h"
#include "sim/topology/registry.h"

namespace pipewright {

// Sizes once it is clear where they come from.
struct RunSizes {
  int pp = 1;
  int vpp = 1;
  int dp = 1;
  int tp = 1;
  int cp = 1;
  int microbatches = 1;
  int slices = 1;

  // pp * dp * tp * cp; CheckDegrees has passed.
  int64_t devices() const;
};

// What a run with a model leaves out of what was asked for. `zero`: ZeroStage.
void WarnOfGaps(const RunConfig& config, const RunSizes& sizes,
                const Schedule& schedule, int zero,
                std::vector<std::string>* warnings);

// Device and links to estimate pass times for, or nothing where they are not
// estimated. `model` and `shape` may be null. Error: an estimate without a
// model, a known device or the links that it needs.
absl::StatusOr<std::optional<AnalyticOptions>> PrepareAnalytic(
    const RunConfig& config, const PreparedModel* model,
    const ShapeParams* shape);

// The links of a system as estimates see them.
AnalyticNetwork NetworkOf(const ShapeParams& shape);

// Pass times of every stage: given, or `measured`, or estimated with
// `analytic` (either or null), or else 1 s each, with a warning. Error: some
// but not all of F, B, W; a list of the wrong length.
absl::StatusOr<PassCosts> PrepareCosts(const RunConfig& config,
                                       const RunSizes& sizes,
                                       const PreparedModel* model,
                                       const AnalyticOptions* analytic,
                                       const PassCosts* measured,
                                       std::vector<std::string>* warnings);

// The factor of each slice, empty where all cost the same: as given, or as the
// schedule cuts them, which then says how many there are. Warns where a file
// of several slices leaves it open.
absl::StatusOr<std::vector<double>> PrepareSlices(
    const RunConfig& config, const std::optional<ModelSpec>& model,
    RunSizes* sizes, std::vector<std::string>* warnings);

// The schedule by its name, not verified.
absl::StatusOr<std::shared_ptr<const Schedule>> PrepareSchedule(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model, const PlanCosts& costs);

// Which rank holds which stage, of `read` or, where it is null, of the
// schedule by name. Before the times are known that a planner needs: no
// planner's placement depends on them.
absl::StatusOr<std::vector<int>> RankOfStage(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model, const Schedule* read);

// Is a given time of the recomputation part of backward_input? With a model
// that recomputes and costs.uniform.recompute.
bool AddsRecompute(const RunConfig& config,
                   const std::optional<PreparedModel>& model);

// R passes of `schedule` take estimated times off the backward that would
// otherwise run the forward again.
void TakeRecomputePasses(const Schedule& schedule, PassCosts* costs);

// What planners see of them.
PlanCosts PlanCostsOf(const RunConfig& config, const RunSizes& sizes,
                      const PassCosts& costs, double hop_s);

// Modules below name fields by path ("strategy.vpp: 3 ..."); this adds where
// the field was given.
absl::Status Locate(const RunConfig& config, const absl::Status& status);

// The preset or config.json with the fields on top, or nothing where no model
// is given. Error: a field missing, a model that cannot be.
absl::StatusOr<std::optional<ModelSpec>> PrepareModel(const RunConfig& config);

// As configured; by default an estimated step is a whole one, where all ranks
// step together.
OptimizerMode OptimizerOf(const RunConfig& config, const Schedule& schedule);

// As configured; by default units where the schedule has them, else passes.
ShardBlocks ShardBlocksOf(const RunConfig& config, const Schedule& schedule);

// ZeRO's stage by strategy.data_parallel or strategy.zero. Error: they
// contradict each other.
absl::StatusOr<int> ZeroStage(const RunConfig& config);

// Degrees, precision, recomputation with their defaults, checked against the
// model where there is one.
absl::StatusOr<TrainingSpec> PrepareTraining(
    const RunConfig& config, const RunSizes& sizes,
    const std::optional<ModelSpec>& model);

// rank_of_stage[stage] matters for the balanced split. Error: layers that do
// not split, more than one of layers, layout and split.
absl::StatusOr<StageLayout> PrepareLayout(
    const RunConfig& config, const RunSizes& sizes, const ModelSpec& model,
    const TrainingSpec& training, const std::vector<int>& rank_of_stage);

// Error: the bytes that a rank may hold are beyond what can be counted, naming
// the largest size that was given.
absl::Status CheckBytes(const RunConfig& config, const RunSizes& sizes,
                        const PreparedModel& model);

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

// The gradient of one device's part of a table that embedding and output head
// share; 0 where they share none.
double TiedGradientBytes(const PreparedModel& model);

// What copies of a stage exchange: kind, bytes and blocks of `run->lower`, from
// the schedule and the model that are there. Warns where gradients are not
// synchronised. Error: bytes that nothing tells.
absl::Status PrepareDataParallel(const RunConfig& config, const RunSizes& sizes,
                                 PreparedRun* run);

// A warning of PrepareNetwork, which does not know what was measured.
inline constexpr char kFreeSynchronisation[] =
    "no system is given: the bytes of gradient synchronisation cost nothing";

// Collectives of gradients and parameters as the profile has them, where their
// members were measured: one device a rank, as many of them and, on a system of
// the profile's device, on as many nodes. A pure delay that was given stands.
// `run->lower` must be complete. Warns where the profile has such collectives
// and the run takes none, or others sizes than those measured.
void TakeMeasuredCollectives(const RunConfig& config, const RunSizes& sizes,
                             const ShapeParams* shape, PreparedRun* run);

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
void WarnOfDevice(const RunConfig& config,
                  const std::optional<AnalyticOptions>& analytic,
                  const std::optional<ShapeParams>& shape,
                  std::vector<std::string>* warnings);

// The memory of every rank and what a device has: as given, of the device
// that costs.analytic names, or of the system's. `shape`, `estimated` and
// `profile` may be null; without a system, what was measured on a CPU has no
// context of CUDA beside it.
MemoryReport PrepareMemory(const RunConfig& config, const PreparedModel& model,
                           std::shared_ptr<const Schedule> schedule,
                           const ShapeParams* shape,
                           const DeviceSpec* estimated,
                           const PreparedProfile* profile);

struct PreparedNetwork {
  Network network;
  std::string name;
  std::string system;  // its name, "" without one
  double hop_s = 0;    // of one transfer, the slowest hop; what planners see
  std::optional<ShapeParams> shape;  // of the system, where there is one
};
// Error: p2p with a system, a system too small, no bytes for its links.
absl::StatusOr<PreparedNetwork> PrepareNetwork(
    const RunConfig& config, const RunSizes& sizes, double hop_bytes,
    absl::string_view engine, std::vector<std::string>* warnings);

}  // namespace pipewright
