#include "sim/report/reliability_report.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/cost/failure_days.h"
#include "sim/cost/jitter.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"

namespace pipewright {
namespace {

// Failures in all stretches together that are too few: their number errs by
// about 20 %.
constexpr double kFewFailures = 20;

struct NamedInterval {
  const char* key;
  const char* name;
  double seconds = 0;
  double goodput = 0;
};

std::vector<NamedInterval> IntervalsOf(const FailingJob& job) {
  std::vector<NamedInterval> intervals = {
      {"young", "Young", YoungInterval(job)},
      {"daly", "Daly", DalyInterval(job)},
      {"best", "best", BestInterval(job)}};
  for (NamedInterval& interval : intervals) {
    FailingJob other = job;
    other.checkpoint_every_s = interval.seconds;
    // Writing that takes no time is best done all the time: no interval then.
    interval.goodput = interval.seconds > 0 ? LongRunParts(other).kept : 0;
  }
  return intervals;
}

Json PartsToJson(const TimeParts& parts) {
  return {{"goodput", parts.kept},
          {"checkpoint", parts.checkpoint},
          {"lost", parts.lost},
          {"restart", parts.restart}};
}

}  // namespace

ReliabilityReport ReportReliability(const FailingJob& job, double horizon_s,
                                    int seeds, uint64_t seed) {
  ReliabilityReport report = {.job = job,
                              .horizon_s = horizon_s,
                              .seeds = seeds,
                              .seed = seed,
                              .formula = LongRunParts(job)};
  const std::vector<FailureDay> days =
      DrawFailureDays(job, horizon_s, seeds, seed);
  std::vector<double> kept;
  for (const FailureDay& day : days) {
    const double weight = 1.0 / seeds / horizon_s;
    kept.push_back(day.seconds.kept / horizon_s);
    report.mean.kept += day.seconds.kept * weight;
    report.mean.checkpoint += day.seconds.checkpoint * weight;
    report.mean.lost += day.seconds.lost * weight;
    report.mean.restart += day.seconds.restart * weight;
    report.failures += static_cast<double>(day.failures) / seeds;
  }
  double square = 0;
  for (const double part : kept) {
    square += (part - report.mean.kept) * (part - report.mean.kept);
  }
  if (seeds > 1) report.error = std::sqrt(square / (seeds - 1) / seeds);
  std::sort(kept.begin(), kept.end());
  report.p5 = QuantileAt(kept, 0.05);
  report.p50 = QuantileAt(kept, 0.5);
  report.p95 = QuantileAt(kept, 0.95);
  return report;
}

std::string ReliabilityToText(const ReliabilityReport& report) {
  constexpr double kNormal95 = 1.96;
  const FailingJob& job = report.job;
  // A mean over hardly any failures says nothing of its own error.
  const bool few = report.failures * report.seeds < kFewFailures;
  const std::string error =
      few ? "too few failures drawn for an interval"
          : absl::StrFormat("+/- %.2g %% (95 %%)",
                            100 * kNormal95 * report.error);
  std::string out = ReportLine(
      "goodput", FormatPercent(report.mean.kept),
      report.seeds == 1
          ? absl::StrCat("of one stretch of ", FormatDuration(report.horizon_s))
          : absl::StrFormat(
                "%s, mean of %d stretches of %s; P5 %s, P95 %s", error,
                report.seeds, FormatDuration(report.horizon_s),
                FormatPercent(report.p5), FormatPercent(report.p95)));
  absl::StrAppend(
      &out,
      ReportLine("  formula", FormatPercent(report.formula.kept),
                 "of a long run"),
      ReportLine(
          "  failures", absl::StrFormat("%.3g", report.failures),
          absl::StrCat("in ", FormatDuration(report.horizon_s), "; one every ",
                       FormatDuration(job.mtbf_s()), ": ", job.devices,
                       job.devices == 1 ? " device" : " devices",
                       ", each fails every ",
                       FormatDuration(job.mtbf_per_device_s))),
      ReportLine(
          "  not kept", FormatPercent(1 - report.mean.kept),
          absl::StrCat("checkpoints ", FormatPercent(report.mean.checkpoint),
                       ", lost work ", FormatPercent(report.mean.lost),
                       ", restarts ", FormatPercent(report.mean.restart))));
  std::string others;
  for (const NamedInterval& interval : IntervalsOf(job)) {
    if (interval.seconds <= 0) continue;
    absl::StrAppend(&others, others.empty() ? "" : ", ", interval.name, " ",
                    FormatDuration(interval.seconds), " (",
                    FormatPercent(interval.goodput), ")");
  }
  absl::StrAppend(
      &out,
      ReportLine("  checkpoint", FormatDuration(job.checkpoint_every_s),
                 absl::StrCat(report.interval_given ? "of work apart"
                                                    : "of work apart, Daly's",
                              others.empty() ? "" : "; ", others)));
  if (report.steps) {
    absl::StrAppend(
        &out,
        ReportLine("  kept steps", absl::StrFormat("%.6g", *report.steps),
                   absl::StrCat("in ", FormatDuration(report.horizon_s),
                                report.tokens ? absl::StrFormat(", %.4g tokens",
                                                                *report.tokens)
                                              : "")));
  }
  return out;
}

Json ReliabilityToJson(const ReliabilityReport& report) {
  const FailingJob& job = report.job;
  Json out = {{"devices", job.devices},
              {"mtbf_per_device_s", job.mtbf_per_device_s},
              {"mtbf_s", job.mtbf_s()},
              {"checkpoint_every_s", job.checkpoint_every_s},
              {"checkpoint_write_s", job.checkpoint_write_s},
              {"restart_s", job.restart_s},
              {"horizon_s", report.horizon_s},
              {"seeds", report.seeds},
              {"seed", report.seed}};
  out.update(PartsToJson(report.mean));
  if (report.seeds > 1 && report.failures * report.seeds >= kFewFailures) {
    out["goodput_error"] = report.error;
  } else {
    out["goodput_error"] = nullptr;
  }
  out["goodput_p5"] = report.p5;
  out["goodput_p50"] = report.p50;
  out["goodput_p95"] = report.p95;
  out["failures"] = report.failures;
  out["formula"] = PartsToJson(report.formula);
  for (const NamedInterval& interval : IntervalsOf(job)) {
    if (interval.seconds <= 0) continue;
    out["intervals"][interval.key] = {{"seconds", interval.seconds},
                                      {"goodput", interval.goodput}};
  }
  if (report.steps) out["steps"] = *report.steps;
  if (report.tokens) out["tokens"] = *report.tokens;
  return out;
}

std::string ReliabilityToHtml(const ReliabilityReport& report) {
  return SectionHtml("reliability", "Failures and goodput",
                     PlainHtml(ReliabilityToText(report)));
}

}  // namespace pipewright
