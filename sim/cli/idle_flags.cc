#include "sim/cli/idle_flags.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/config/config_fields.h"
#include "sim/schedule/text.h"

namespace pipewright {
namespace {

using Paths = std::set<std::string>;

// As if nobody had given the fields at `paths`.
RunConfig Without(RunConfig config, const Paths& paths) {
  for (const ConfigField& field : ConfigFields()) {
    if (field.kind != FieldKind::kPairs) {
      if (paths.count(field.path) > 0) ClearField(field, &config);
      continue;
    }
    const std::string section = absl::StrCat(field.path, ".");
    std::erase_if(*PairsOf(field, &config), [&](const auto& pair) {
      return paths.count(section + pair.first) > 0;
    });
  }
  return config;
}

// Given on the command line: a file may serve several verbs.
Paths GivenAsFlags(const RunConfig& config,
                   const std::function<bool(const std::string&)>& is_one) {
  Paths paths;
  for (const std::string& path : GivenPaths(config)) {
    const auto origin = config.origins.find(path);
    const bool is_flag = origin != config.origins.end() &&
                         absl::StartsWith(origin->second.flag, "--");
    if (is_flag && is_one(path)) paths.insert(path);
  }
  return paths;
}

bool IsOneOf(const std::string& path, const std::vector<std::string>& fields) {
  return std::any_of(fields.begin(), fields.end(), [&](const auto& field) {
    return path == field ||
           (absl::EndsWith(field, ".") && absl::StartsWith(path, field));
  });
}

// `pair` changes what an order means, not how it is written.
constexpr char kPair[] = "schedule.params.pair";

bool IsOfOrder(const std::string& path) {
  return path != kPair &&
         IsOneOf(path, {"schedule.", "strategy.pp", "strategy.vpp",
                        "strategy.microbatches", "strategy.global_batch",
                        "strategy.slices", "strategy.max_activations"});
}

// Planners see none of these (ScheduleParams).
bool IsNeverPlannedFor(const std::string& path) {
  return IsOneOf(path, {kPair,
                        "engine",
                        "network",
                        "iterations",
                        "costs.uniform.recompute",
                        "costs.uniform.offload",
                        "costs.uniform.load",
                        "costs.microbatch_factor",
                        "costs.gradient_bytes",
                        "costs.optimizer_time",
                        "costs.validation_time",
                        "costs.rollback_time",
                        "costs.prediction_time",
                        "costs.jitter",
                        "costs.seed",
                        "costs.interference",
                        "costs.price_per_device_hour",
                        "strategy.data_parallel",
                        "strategy.overlap_gradients",
                        "strategy.shard_blocks",
                        "strategy.reshard_after_forward",
                        "strategy.shard_group",
                        "strategy.near_group",
                        "strategy.gather_type",
                        "strategy.one_comm_stream",
                        "strategy.pull_flows",
                        "strategy.owner_poll",
                        "strategy.optimizer",
                        "strategy.validation",
                        "strategy.rollback_iterations",
                        "strategy.memory_context",
                        "strategy.fragmentation",
                        "system.memory"});
}

bool HasSameOrder(const RunConfig& config, const PreparedRun& run) {
  const absl::StatusOr<PreparedRun> other = Prepare(config);
  return other.ok() && ScheduleToText(*other->schedule.written) ==
                           ScheduleToText(*run.schedule.written);
}

std::vector<std::string> Warnings(const RunConfig& config, const Paths& paths,
                                  absl::string_view why) {
  std::vector<std::string> warnings;
  for (const std::string& path : paths) {
    // Its device says the same.
    if (path == "costs.analytic" && config.costs.analytic_device) continue;
    warnings.push_back(
        absl::StrCat(config.Field(path), " has no effect ", why));
  }
  return warnings;
}

}  // namespace

std::vector<std::string> IdleInSchedule(const RunConfig& config,
                                        const PreparedRun& run) {
  constexpr char kWhy[] = "on the order of the passes";
  const Paths others = GivenAsFlags(
      config, [](const std::string& path) { return !IsOfOrder(path); });
  if (others.empty()) return {};
  // A search for an order would run again, and end elsewhere if it was cut.
  const bool is_searched = run.schedule.written->found.has_value();
  if (!is_searched && HasSameOrder(Without(config, others), run)) {
    return Warnings(config, others, kWhy);
  }
  const bool copies = run.schedule.params.count("offload") > 0;
  const auto is_idle = [&](const std::string& path) {
    // A search knows what memory is left and what running again, or a copy,
    // takes.
    return IsNeverPlannedFor(path) &&
           !(is_searched &&
             (IsOneOf(path, {"system.memory", "costs.uniform.recompute"}) ||
              (copies && IsOneOf(path, {"costs.uniform.offload",
                                        "costs.uniform.load"}))));
  };
  return Warnings(config, GivenAsFlags(config, is_idle), kWhy);
}

std::vector<std::string> IdleInCheck(const RunConfig& config,
                                     const Schedule& schedule) {
  const std::vector<std::string> given = GivenPaths(config);
  const bool weighs =
      config.system.memory_bytes ||
      std::any_of(given.begin(), given.end(), [](const std::string& path) {
        return absl::StartsWith(path, "model.");
      });
  const auto is_read = [&](const std::string& path) {
    if (path == "strategy.max_activations") return true;
    if (path == "costs.held_until_weight") {
      return schedule.Has(PassKind::kBackwardWeight);
    }
    // What a model holds is counted as its costs say.
    return weighs &&
           IsOneOf(path, {"model.", "strategy.", "system.", "costs.analytic",
                          "costs.analytic.device", "costs.profile"});
  };
  return Warnings(
      config,
      GivenAsFlags(config,
                   [&](const std::string& path) { return !is_read(path); }),
      weighs ? "on what check says of this file"
             : "on what check says of this file without a model");
}

}  // namespace pipewright
