// CollectGallery (verbs.h).
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/analysis/plot/figure.h"
#include "sim/base/status.h"
#include "sim/cli/verbs.h"
#include "sim/program/program.h"
#include "sim/report/facts.h"
#include "sim/report/gallery.h"
#include "sim/run/simulated_run.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

constexpr int kDefaultRanks = 4;
constexpr int kDefaultMicrobatches = 8;
// A picture with more passes shows no single one, and there are many pictures.
constexpr int64_t kMaxPasses = 200'000;

absl::Status CheckDrawable(const PreparedRun& prepared,
                           const Program& program) {
  if (program.num_passes() > kMaxPasses) {
    return absl::InvalidArgumentError(
        absl::StrCat(program.num_passes(), " passes; allowed: up to ",
                     kMaxPasses, " in a picture"));
  }
  return prepared.limit();
}

// `idle`: how many schedules each option without effect is of.
absl::Status Draw(const RunConfig& config, RunContext* context,
                  std::vector<std::string>* warnings,
                  std::map<std::string, int>* idle, GalleryEntry* entry) {
  FullTrace trace;
  SimulateOptions options;
  options.trace = &trace;
  options.admit = &CheckDrawable;
  PW_ASSIGN_OR_RETURN(SimulatedRun simulated,
                      Simulate(config, context, options));
  for (const TraceOp& op : trace.ops()) {
    if (op.iteration == 0 && op.replica == 0) entry->ops.push_back(op);
  }
  entry->program = std::move(simulated.program);
  entry->report = std::move(simulated.report);
  const PreparedRun& run = simulated.prepared;
  const auto is_idle = [&](const std::string& warning) {
    return std::any_of(
        run.unused.begin(), run.unused.end(),
        [&](const UnusedField& option) { return option.warning == warning; });
  };
  for (const UnusedField& option : run.unused) ++(*idle)[option.warning];
  for (const std::string& warning : run.warnings) {
    if (is_idle(warning)) continue;
    if (std::find(warnings->begin(), warnings->end(), warning) ==
        warnings->end()) {
      warnings->push_back(warning);
    }
  }
  return absl::OkStatus();
}

// What the charts of the page show, where it has no charts and in print.
std::string FigureOf(const Gallery& gallery, const std::string& y) {
  Figure figure;
  figure.x.path = kGalleryX;
  figure.y.path = y;
  for (const GalleryEntry& entry : gallery.entries) {
    const std::vector<double>& peaks = entry.report.peak_activations;
    if (!entry.refusal.empty() || peaks.empty()) continue;
    FigurePoint& point = figure.points.emplace_back();
    point.name = entry.name;
    figure.in_units = entry.report.in_units;
    point.x = *std::max_element(peaks.begin(), peaks.end());
    point.y = y == "iteration_s" ? entry.report.iteration_s
                                 : entry.report.bubble_fraction.per_rank;
  }
  return figure.points.empty() ? "" : FigureSvg(figure);
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
  RunContext context;
  std::vector<ReportFact> facts;  // facts of any that is drawn
  for (const ScheduleInfo* info : AllSchedules()) {
    GalleryEntry entry = {info->name, info->summary, info->source};
    each.schedule.name = info->name;
    // Each would choose a number of its own.
    each.strategy.slices = config.strategy.slices;
    if (info->slice_factor && !config.strategy.slices) {
      each.strategy.slices = std::max(1, *each.strategy.pp);
    }
    const absl::Status status =
        Draw(each, &context, &gallery.warnings, &idle, &entry);
    if (status.ok()) {
      ++drawn;
      facts = FactsOf(entry.report);
    } else {
      refusal = status;
      entry = {info->name, info->summary, info->source,
               std::string(status.message())};
    }
    gallery.entries.push_back(std::move(entry));
  }
  if (drawn == 0) return refusal;
  for (const char* y : kGalleryCharts) {
    std::string svg = FigureOf(gallery, y);
    if (!svg.empty()) gallery.figures.push_back(std::move(svg));
  }
  // What matters to one of the pictures is no idle option.
  for (const auto& [warning, count] : idle) {
    if (count == drawn) gallery.warnings.push_back(warning);
  }
  const auto fact = [&facts](absl::string_view name) {
    return FactText(*FindFact(facts, name));
  };
  gallery.facts = {fact("pp"),
                   fact("microbatches"),
                   "chunks a rank as each schedule has by default",
                   config.strategy.slices
                       ? absl::StrCat("slices ", *config.strategy.slices)
                       : "slices pp in schedules that cut a sequence, else 1",
                   fact("engine"),
                   fact("network")};
  return gallery;
}

}  // namespace pipewright
