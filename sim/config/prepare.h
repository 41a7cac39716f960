// RunConfig -> everything that Lower and an engine need: presets resolved,
// defaults filled in, sizes checked against each other, the schedule built
// (or read) and verified.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/prepare_profile.h"
#include "sim/config/run_config.h"
#include "sim/cost/analytic.h"
#include "sim/model/model.h"
#include "sim/model/stages.h"
#include "sim/model/training.h"
#include "sim/program/lower.h"
#include "sim/report/memory_report.h"
#include "sim/schedule/schedule.h"
#include "sim/topology/cluster.h"
#include "sim/topology/mapping.h"

namespace pipewright {

// A model on the stages of a run.
struct PreparedModel {
  ModelSpec spec;
  TrainingSpec training;
  StageLayout layout;
  std::vector<int> rank_of_stage;  // of replica a
};

// A field that was given and changes nothing in the run.
struct IdleOption {
  std::string path;     // "costs.p2p"
  std::string warning;  // "run.yaml:3: costs.p2p has no effect ..."
};

struct PreparedRun {
  RunConfig config;  // as given, with the sizes of the strategy filled in
  std::shared_ptr<const Schedule> schedule;  // to be lowered
  // As built or read, (X&Y) blocks in their place: what is printed.
  std::shared_ptr<const Schedule> written;
  LowerOptions lower;
  std::string engine;
  std::shared_ptr<const Cluster> cluster;      // null: no system
  std::shared_ptr<const RankMapping> mapping;  // null: no system
  std::string network_name;  // "hop 0.601 ms", "dgx-h100 (fluid)", "free"
  std::string system;        // name, "" without one
  std::string model;         // preset, file, "custom", or "" without one
  std::optional<PreparedModel> prepared_model;
  // Of every rank, with a model; whether it fits is MemoryVerdict's to say.
  std::optional<MemoryReport> memory;
  std::optional<AnalyticOptions> analytic;  // what pass times are estimated of
  std::optional<PreparedProfile> profile;   // what they were measured with
  bool measured_hops = false;  // the delay of hops is the profile's
  // Of gradients and parameters, "all_reduce over 4"; "": none.
  std::string measured_collectives;
  std::optional<DeviceSpec> device;  // whose peaks count; the system's else
  std::map<std::string, std::string> params;  // given and implied ones
  std::optional<double> tokens;  // of an iteration, all replicas; if known
  // Does a rank hold more than strategy.max_activations? Nothing without a
  // limit; kResourceExhausted where it is exceeded.
  std::optional<absl::Status> limit;
  std::vector<IdleOption> idle;
  std::vector<std::string> warnings;  // those of `idle` too

  // Of `memory`, null without one.
  const ScheduleMemory* memory_of_ranks() const {
    return memory ? memory->memory.get() : nullptr;
  }
};

// Makes the memory of a prepared run, where it has any, that of another
// framework than Megatron-LM; its limit stays.
void TakeMemoryFramework(std::shared_ptr<const MemoryFramework> framework,
                         PreparedRun* run);

// Errors: kInvalidArgument or kNotFound with field, value and what is
// allowed; kFailedPrecondition for a schedule file that is no schedule;
// kResourceExhausted where a planner cannot meet strategy.max_activations. A
// fixed schedule that exceeds it is prepared all the same: see `limit`.
absl::StatusOr<PreparedRun> Prepare(const RunConfig& config);

}  // namespace pipewright
