// A run's calibration profile: read, turned into pass times, and what else of
// a run follows from it. Part of Prepare; for sim/config and its readers.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"
#include "sim/cost/profile_costs.h"
#include "sim/report/memory_report.h"
#include "sim/schedule/schedule.h"
#include "sim/topology/registry.h"

namespace pipewright {

struct PreparedCosts;
struct PreparedModel;

struct PreparedProfile {
  std::string name;  // as given
  std::shared_ptr<const Profile> profile;
  ProfileCosts costs;
};

// The file or shipped profile of costs.profile, or nothing. Error: one that
// cannot be read, or given together with other pass times or without a model.
absl::StatusOr<std::optional<PreparedProfile>> LoadProfile(
    const RunConfig& config, bool has_model, RunContext* context);

// Fills in `costs`. `shape`: of the system, may be null.
absl::Status TakeProfileTimes(const RunConfig& config,
                              const PreparedModel& model,
                              const ShapeParams* shape, const Network& links,
                              PreparedProfile* profile,
                              std::vector<std::string>* warnings);

// What a hop takes as measured, where neither a system nor costs.p2p is given
// and the profile has send_recv between two.
std::optional<double> MeasuredHop(const RunConfig& config,
                                  const std::optional<PreparedProfile>& profile,
                                  int pp, double hop_bytes,
                                  std::vector<std::string>* warnings);

// What else of a run follows once its schedule is there: the optimizer step of
// both directions of a bidirectional one, the noise that costs.jitter asks for,
// the matrix unless costs.interference is off. `model` is there where a profile
// is. Errors: a schedule that splits the backward with a profile that does not,
// jitter without noise to draw from, interference without a matrix. Warns where
// a network model (`has_links`) keeps transfers from being slowed.
absl::Status TakeProfileEffects(const RunConfig& config,
                                const PreparedModel* model,
                                const Schedule& schedule,
                                absl::string_view engine, bool has_links,
                                PreparedCosts* costs,
                                std::vector<std::string>* warnings);

// Is it of a CPU, all of it?
bool MeasuredOnCpu(const Profile& profile);

// The device's memory as a limit, where nothing else gives one.
void TakeProfileMemory(const PreparedProfile& profile, MemoryReport* memory);

}  // namespace pipewright
