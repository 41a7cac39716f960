#include "sim/cli/gallery.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/config/prepare.h"
#include "sim/engine/engine.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr int kDefaultRanks = 4;
constexpr int kDefaultMicrobatches = 8;
// A picture with more passes shows no single one, and there are many pictures.
constexpr int64_t kMaxPasses = 200'000;

// `idle`: how many schedules each option without effect is of.
absl::Status Draw(const RunConfig& config, std::vector<std::string>* warnings,
                  std::map<std::string, int>* idle, std::string* network,
                  GalleryEntry* entry) {
  PW_ASSIGN_OR_RETURN(const PreparedRun run, Prepare(config));
  PW_ASSIGN_OR_RETURN(entry->program, Lower(run.schedule, run.lower));
  if (entry->program.num_passes() > kMaxPasses) {
    return absl::InvalidArgumentError(
        absl::StrCat(entry->program.num_passes(), " passes; allowed: up to ",
                     kMaxPasses, " in a picture"));
  }
  PW_RETURN_IF_ERROR(run.limit.value_or(absl::OkStatus()));
  PW_ASSIGN_OR_RETURN(const EngineInfo* engine, FindEngine(run.engine));
  FullTrace trace;
  EngineOptions options;
  options.trace = &trace;
  PW_ASSIGN_OR_RETURN(const RunSummary summary,
                      engine->run(entry->program, options));
  for (const TraceOp& op : trace.ops()) {
    if (op.iteration == 0 && op.replica == 0) entry->ops.push_back(op);
  }
  entry->report = Summarize(
      entry->program, summary,
      PeakActivations(*run.schedule, run.lower.costs.held_until_weight));
  const auto is_idle = [&](const std::string& warning) {
    return std::any_of(
        run.idle.begin(), run.idle.end(),
        [&](const IdleOption& option) { return option.warning == warning; });
  };
  for (const IdleOption& option : run.idle) ++(*idle)[option.warning];
  for (const std::string& warning : run.warnings) {
    if (is_idle(warning)) continue;
    if (std::find(warnings->begin(), warnings->end(), warning) ==
        warnings->end()) {
      warnings->push_back(warning);
    }
  }
  *network = run.network_name;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Gallery> CollectGallery(const RunConfig& config) {
  RunConfig each = config;
  each.engine = "fast";
  each.strategy.pp = config.strategy.pp.value_or(kDefaultRanks);
  each.strategy.microbatches =
      config.strategy.microbatches.value_or(kDefaultMicrobatches);
  Gallery gallery;
  absl::Status refusal;
  int drawn = 0;
  std::map<std::string, int> idle;
  std::string network;
  for (const ScheduleInfo* info : AllSchedules()) {
    GalleryEntry entry = {info->name, info->summary, info->source};
    each.schedule.name = info->name;
    // Each would choose a number of its own.
    each.strategy.slices = config.strategy.slices;
    if (info->slice_factor && !config.strategy.slices) {
      each.strategy.slices = std::max(1, *each.strategy.pp);
    }
    const absl::Status status =
        Draw(each, &gallery.warnings, &idle, &network, &entry);
    if (status.ok()) {
      ++drawn;
    } else {
      refusal = status;
      entry = {info->name, info->summary, info->source,
               std::string(status.message())};
    }
    gallery.entries.push_back(std::move(entry));
  }
  if (drawn == 0) return refusal;
  // What matters to one of the pictures is no idle option.
  for (const auto& [warning, count] : idle) {
    if (count == drawn) gallery.warnings.push_back(warning);
  }
  gallery.facts = {absl::StrCat("pp ", *each.strategy.pp),
                   absl::StrCat("microbatches ", *each.strategy.microbatches),
                   "chunks a rank as each schedule has by default",
                   config.strategy.slices
                       ? absl::StrCat("slices ", *config.strategy.slices)
                       : "slices pp in schedules that cut a sequence, else 1",
                   "engine fast",
                   absl::StrCat("network ", network)};
  return gallery;
}

}  // namespace pipewright
