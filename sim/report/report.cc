#include "sim/report/report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/base/statistics.h"
#include "sim/memory/activations.h"
#include "sim/program/program.h"
#include "sim/topology/mapping.h"

namespace pipewright {
namespace {

// What rounding leaves where a rank is never idle is no idle time.
double Idle(double span, double busy) {
  const double idle = span - busy;
  return std::abs(idle) <= 1e-12 * span ? 0 : idle;
}

double Ratio(double part, double whole) { return whole > 0 ? part / whole : 0; }

std::vector<std::string> NotModelled(const Program& program) {
  bool optimizer = false;
  bool collective = false;
  for (const RankProgram& rank : program.ranks) {
    for (const SideOp& side_op : rank.side_ops) {
      optimizer |= side_op.kind == OpKind::kOptimizer ||
                   side_op.kind == OpKind::kHostAdam;
      collective |= IsCollective(side_op.kind) || IsOneSided(side_op.kind);
    }
  }
  std::vector<std::string> out = {"kernel launch gaps"};
  if (!optimizer) out.push_back("the optimizer step");
  if (program.replicas * program.network.context_parallel > 1 && !collective) {
    out.push_back("synchronisation of the data-parallel replicas");
  }
  if (program.network.cluster == nullptr && program.network.hop_s == 0) {
    out.push_back("transfer times between ranks (hops are free)");
  }
  return out;
}

Json Pair(const GlobalAndPerRank& value) {
  return {{"global", value.global}, {"per_rank", value.per_rank}};
}

// "mean of 7 periods, 95 % interval 1.2 s to 1.3 s (jitter profile, seed 0)".
std::string JitterNote(const JitterReport& report) {
  const std::string draw =
      absl::StrCat(" (jitter ", report.kind, ", seed ", report.seed, ")");
  if (!report.interval) {
    return absl::StrCat("one drawn period, no interval", draw);
  }
  return absl::StrCat("mean of ", report.periods_s.size(),
                      " periods, 95 % interval ",
                      FormatSeconds(report.interval->low_s), " to ",
                      FormatSeconds(report.interval->high_s), draw);
}

Json JitterToJson(const JitterReport& report) {
  const auto& interval = report.interval;
  return {{"kind", report.kind},
          {"seed", report.seed},
          {"periods_s", report.periods_s},
          {"iteration_s_low", interval ? Json(interval->low_s) : Json()},
          {"iteration_s_high", interval ? Json(interval->high_s) : Json()}};
}

}  // namespace

Report::Report() = default;
Report::Report(const Report&) = default;
Report::Report(Report&&) noexcept = default;
Report& Report::operator=(const Report&) = default;
Report& Report::operator=(Report&&) noexcept = default;
Report::~Report() = default;

JitterReport ReportJitter(const RunSummary& run, uint64_t seed) {
  JitterReport report;
  report.seed = seed;
  const std::vector<double>& ends_s = run.iteration_end_s;
  for (size_t index = 1; index < ends_s.size(); ++index) {
    report.periods_s.push_back(ends_s[index] - ends_s[index - 1]);
  }
  if (ends_s.size() == 1) report.periods_s = ends_s;
  if (report.periods_s.empty()) return report;
  const auto count = static_cast<double>(report.periods_s.size());
  for (const double period_s : report.periods_s) {
    report.mean_s += period_s / count;
  }
  if (report.periods_s.size() == 1) return report;
  double square = 0;
  for (const double period_s : report.periods_s) {
    square += (period_s - report.mean_s) * (period_s - report.mean_s);
  }
  const double half =
      StudentT(0.95, static_cast<int64_t>(report.periods_s.size()) - 1) *
      std::sqrt(square / (count - 1) / count);
  report.interval = {report.mean_s - half, report.mean_s + half};
  return report;
}

RowTimes TimesOfRow(const std::vector<RankTimes>& row) {
  RowTimes out;
  double first_s = INFINITY;
  double last_s = -INFINITY;
  for (const RankTimes& times : row) {
    if (times.busy_s <= 0 && times.span_s() <= 0) continue;
    first_s = std::min(first_s, times.first_start_s);
    last_s = std::max(last_s, times.last_end_s);
    out.busy_s = std::max(out.busy_s, times.busy_s);
  }
  if (last_s > first_s) out.span_s = last_s - first_s;
  return out;
}

Report Summarize(const Program& program, const RunSummary& run,
                 std::vector<double> peak_activations) {
  Report report;
  report.schedule = program.name;
  report.pp = program.pp();
  report.dp = program.replicas;
  if (program.schedule != nullptr) {
    report.vpp = program.schedule->vpp();
    report.microbatches = program.schedule->microbatches;
    report.slices = program.schedule->slices;
  }
  report.iteration_s = run.iteration_s();
  if (program.jitter != nullptr) {
    report.jitter = ReportJitter(run, program.jitter->seed);
    report.iteration_s = report.jitter->mean_s;
  }
  report.iterations = run.iterations();
  report.steady = run.steady;
  report.measured = run.measured;
  report.in_units = program.in_units;
  report.ops = run.passes;
  report.bytes_sent = run.bytes_sent;
  report.peak_activations = std::move(peak_activations);
  report.not_modelled = NotModelled(program);
  if (program.schedule != nullptr && program.schedule->update_every > 0) {
    WeightVersions weights = WeightVersionsOf(*program.schedule);
    report.staleness = std::move(weights.staleness);
    report.weight_versions = std::move(weights.versions);
    report.microbatches_per_s =
        Ratio(static_cast<double>(report.microbatches) * report.dp,
              report.iteration_s);
  }
  for (const int iteration : program.false_starts) {
    if (iteration >= run.iterations()) continue;
    const double took_s =
        run.iteration_end_s[iteration] - run.iteration_end_s[iteration - 1];
    report.rollbacks.push_back(
        {.iteration = iteration - 1, .cost_s = took_s - report.iteration_s});
  }
  if (program.network.mapping != nullptr) {
    report.mapping =
        program.network.mapping->ToString(*program.network.cluster);
  }
  if (run.times.empty()) return report;

  const std::vector<RankTimes>& slowest = *std::max_element(
      run.times.begin(), run.times.end(),
      [](const std::vector<RankTimes>& left,
         const std::vector<RankTimes>& right) {
        return TimesOfRow(left).span_s < TimesOfRow(right).span_s;
      });
  report.span_s.global = TimesOfRow(slowest).span_s;
  for (size_t rank = 0; rank < slowest.size(); ++rank) {
    const RankTimes& times = slowest[rank];
    RankReport row;
    row.rank = static_cast<int>(rank);
    row.busy_s = times.busy_s;
    row.span_s = times.span_s();
    row.idle_s = Idle(times.span_s(), times.busy_s);
    row.first_start_s = times.first_start_s;
    row.last_end_s = times.last_end_s;
    row.late_load_s = times.late_load_s;
    row.late_free_s = times.late_free_s;
    if (rank < report.peak_activations.size()) {
      row.peak_activations = report.peak_activations[rank];
    }
    if (const RankMapping* mapping = program.network.mapping.get()) {
      for (int replica = 0; replica < mapping->dp(); ++replica) {
        for (int index = 0; index < mapping->devices_per_rank(); ++index) {
          row.devices.push_back(mapping->DeviceOf(replica, row.rank, index));
        }
      }
    }
    report.busy_s = std::max(report.busy_s, row.busy_s);
    report.span_s.per_rank = std::max(report.span_s.per_rank, row.span_s);
    report.ranks.push_back(row);
  }
  const double global_idle = Idle(report.span_s.global, report.busy_s);
  const double rank_idle = Idle(report.span_s.per_rank, report.busy_s);
  report.bubble_fraction = {Ratio(global_idle, report.span_s.global),
                            Ratio(rank_idle, report.span_s.per_rank)};
  report.bubble_overhead = {Ratio(global_idle, report.busy_s),
                            Ratio(rank_idle, report.busy_s)};
  return report;
}

const char* TimeUnitName(bool in_units) { return in_units ? "unit" : "s"; }

bool IsTimePath(absl::string_view path) {
  // The last part that has a unit in its name: peak_memory_bytes.max.
  return (absl::EndsWith(path, "_s") || absl::StrContains(path, "_s.")) &&
         !absl::StrContains(path, "per_s");
}

std::string PathInUnits(absl::string_view path, absl::string_view unit) {
  size_t at = path.find("_s.");
  if (at == absl::string_view::npos && absl::EndsWith(path, "_s")) {
    at = path.size() - 2;
  }
  if (at == absl::string_view::npos) return std::string(path);
  return absl::StrCat(path.substr(0, at), unit, path.substr(at + 2));
}

namespace {

std::string PeriodWords(const Report& report) {
  if (report.jitter) return JitterNote(*report.jitter);
  if (report.iterations <= 1) return "last end of the only iteration";
  if (report.measured) {
    return report.iterations == 2
               ? "measured, from the end of the first to that of the second"
               : absl::StrCat("measured, the median of ", report.iterations - 1,
                              " periods, the first iteration left out");
  }
  return absl::StrCat(report.steady ? "steady-state period, the last of "
                                    : "period over the last of ",
                      report.iterations, " iterations",
                      report.steady ? "" : ", which is not constant yet");
}

}  // namespace

std::string PeriodNote(const Report& report) {
  std::string note = PeriodWords(report);
  if (report.interval && !report.interval->unmeasured.empty()) {
    absl::StrAppend(&note, "; ", report.interval->unmeasured);
  }
  return note;
}

std::string IntervalText(const StepInterval& interval, double iteration_s) {
  const std::string text = absl::StrFormat(
      "%s to %s, %+.1f to %+.1f %%", FormatSeconds(interval.low_s),
      FormatSeconds(interval.high_s),
      100 * Ratio(interval.low_s - iteration_s, iteration_s),
      100 * Ratio(interval.high_s - iteration_s, iteration_s));
  return interval.note.empty() ? text
                               : absl::StrCat(text, " (", interval.note, ")");
}

Json FoundOrderToJson(const FoundOrder& found) {
  return {
      {"time_s", found.time}, {"least_time_s", found.least_time},
      {"gap", found.gap()},   {"span", found.is_whole ? "global" : "per_rank"},
      {"start", found.start}, {"start_time_s", found.start_time},
      {"steps", found.steps}, {"cut", found.is_cut}};
}

Json IntervalToJson(const std::optional<StepInterval>& interval) {
  if (!interval) return nullptr;
  return Json::array({interval->low_s, interval->high_s});
}

Json ReportTree(const Report& report) {
  Json ranks = Json::array();
  for (const RankReport& rank : report.ranks) {
    ranks.push_back({{"rank", rank.rank},
                     {"busy_s", rank.busy_s},
                     {"span_s", rank.span_s},
                     {"idle_s", rank.idle_s},
                     {"first_start_s", rank.first_start_s},
                     {"last_end_s", rank.last_end_s},
                     {"peak_activations", rank.peak_activations}});
    if (!rank.devices.empty()) ranks.back()["devices"] = rank.devices;
  }
  Json out;
  out["schedule"] = report.schedule;
  out["engine"] = report.engine;
  if (report.activities) {
    out["activities"] = {{"exec", report.activities->execs},
                         {"comm", report.activities->comms}};
  }
  out["network"] = report.network;
  out["pp"] = report.pp;
  out["vpp"] = report.vpp;
  out["microbatches"] = report.microbatches;
  out["slices"] = report.slices;
  out["tp"] = report.tp;
  out["cp"] = report.cp;
  out["dp"] = report.dp;
  out["data_parallel"] = report.data_parallel;
  out["gradient_sync"] = report.gradient_sync;
  out["params"] = Json::object();
  for (const auto& [key, value] : report.params) out["params"][key] = value;
  if (report.found_order) {
    out["found_order"] = FoundOrderToJson(*report.found_order);
  }
  const auto name_or_null = [](const std::string& name) {
    return name.empty() ? Json() : Json(name);
  };
  out["model"] = name_or_null(report.model);
  out["system"] = name_or_null(report.system);
  out["optimizer"] = report.optimizer;
  if (!report.optimizer_placement.empty()) {
    out["optimizer_placement"] = report.optimizer_placement;
    out["optimizer_stride"] = report.optimizer_stride;
  }
  out["waiting"] = report.waiting;
  out["time_unit"] = TimeUnitName(report.in_units);
  out["span_s"] = Pair(report.span_s);
  out["busy_s"] = report.busy_s;
  out["bubble_fraction"] = Pair(report.bubble_fraction);
  out["bubble_overhead"] = Pair(report.bubble_overhead);
  out["iteration_s"] = report.iteration_s;
  out["iteration_interval_s"] = IntervalToJson(report.interval);
  if (report.interval && !report.interval->unmeasured.empty()) {
    out["unmeasured_kind"] = report.interval->unmeasured;
  }
  if (report.interval && !report.interval->note.empty()) {
    out["iteration_interval_note"] = report.interval->note;
  }
  out["iterations"] = report.iterations;
  out["steady"] = report.steady;
  if (report.jitter) out["jitter"] = JitterToJson(*report.jitter);
  if (report.throughput) AddThroughput(*report.throughput, &out);
  if (report.microbatches_per_s) {
    out["microbatches_per_s"] = *report.microbatches_per_s;
    out["staleness"] = report.staleness;
    out["weight_versions"] = report.weight_versions;
  }
  if (report.fits) out["fits"] = *report.fits;
  for (const RollbackReport& rollback : report.rollbacks) {
    out["rollbacks"].push_back(
        {{"iteration", rollback.iteration}, {"cost_s", rollback.cost_s}});
  }
  out["ops"] = report.ops;
  out["bytes_sent"] = report.bytes_sent;
  out["peak_activations"] = report.peak_activations;
  if (report.held_until_weight) {
    out["held_until_weight"] = *report.held_until_weight;
  }
  if (report.sequences) out["sequences"] = SequencesToJson(*report.sequences);
  if (!report.collectives.empty()) {
    out["collectives"] = CollectivesToJson(report.collectives);
  }
  if (report.slow) out["slow"] = SlowToJson(*report.slow);
  if (report.reliability) {
    out["reliability"] = ReliabilityToJson(*report.reliability);
  }
  if (report.offload) out["offload"] = OffloadToJson(*report.offload);
  if (report.costs) out["costs"] = CostsToJson(*report.costs);
  if (report.profile) out["costs"] = ProfileCostsToJson(*report.profile);
  if (report.dp_classes) out["dp_classes"] = ClassesToJson(*report.dp_classes);
  if (report.memory) {
    Json peaks = Json::array();
    const bool of_classes =
        report.dp_classes &&
        !report.dp_classes->classes[0].peak_memory_bytes.empty();
    for (const double peak : PeakMemoryOf(report)) {
      // Classes have printed theirs as a double from the beginning.
      peaks.push_back(of_classes ? Json(peak)
                                 : Json(static_cast<int64_t>(peak)));
    }
    out["peak_memory_bytes"] = std::move(peaks);
    Json on_host = Json::array();
    for (const RankMemory& rank : report.memory->memory->ranks) {
      on_host.push_back(rank.peak_host());
    }
    out["peak_host_bytes"] = std::move(on_host);
    // Classes of slow devices hold the same as all others.
    if (report.dp_classes &&
        !report.dp_classes->classes[0].peak_host_bytes.empty()) {
      out["peak_host_bytes"] =
          MostOfClasses(*report.dp_classes, &DpClassReport::peak_host_bytes);
    }
    out["memory"] = MemoryToJson(*report.memory);
  }
  out["ranks"] = std::move(ranks);
  out["warnings"] = report.warnings;
  return out;
}

std::vector<std::string> ReportKeys() {
  return {"schedule",
          "engine",
          "activities",
          "network",
          "pp",
          "vpp",
          "microbatches",
          "slices",
          "tp",
          "cp",
          "dp",
          "data_parallel",
          "gradient_sync",
          "params",
          "found_order",
          "model",
          "system",
          "optimizer",
          "optimizer_placement",
          "optimizer_stride",
          "waiting",
          "time_unit",
          "span_s",
          "busy_s",
          "bubble_fraction",
          "bubble_overhead",
          "iteration_s",
          "iteration_interval_s",
          "iteration_interval_note",
          "unmeasured_kind",
          "iterations",
          "steady",
          "jitter",
          "microbatches_per_s",
          "staleness",
          "weight_versions",
          "fits",
          "rollbacks",
          "ops",
          "bytes_sent",
          "peak_activations",
          "held_until_weight",
          "sequences",
          "offload",
          "costs",
          "dp_classes",
          "collectives",
          "slow",
          "reliability",
          "peak_memory_bytes",
          "peak_host_bytes",
          "memory",
          "ranks",
          "warnings",
          "tokens_per_s",
          "devices",
          "tflops_per_device",
          "mfu",
          "hardware_tflops_per_device",
          "hfu",
          "flops_per_token",
          "flops_formula",
          "causal_attention_halved",
          "peak_tflops",
          "peak_of",
          "cost_per_1e9_tokens",
          "joules_per_step",
          "joules_interval",
          "watts_per_device",
          "tokens_per_joule"};
}

std::string ReportToJson(const Report& report) {
  // A schedule file's name need not be UTF-8; dump() would throw on it.
  return ReportTree(report).dump(2) + "\n";
}

std::vector<double> PeakMemoryOf(const Report& report) {
  std::vector<double> peaks;
  if (!report.memory) return peaks;
  // Classes of slow devices hold the same as all others.
  if (report.dp_classes &&
      !report.dp_classes->classes[0].peak_memory_bytes.empty()) {
    return MostOfClasses(*report.dp_classes, &DpClassReport::peak_memory_bytes);
  }
  for (const RankMemory& rank : report.memory->memory->ranks) {
    peaks.push_back(static_cast<double>(rank.peak()));
  }
  return peaks;
}

double MostPeakMemoryOf(const Report& report) {
  const std::vector<double> peaks = PeakMemoryOf(report);
  return peaks.empty() ? 0 : *std::max_element(peaks.begin(), peaks.end());
}

}  // namespace pipewright
