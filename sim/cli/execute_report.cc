#include "sim/cli/execute_report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

// The tolerance for fp32.
constexpr double kFineTolerance = 1e-3;

double ErrorOf(const ExecuteReport& report) {
  return *report.predicted_iteration_s / report.report.iteration_s - 1;
}

}  // namespace

std::string ClockName(ClockKind clock) {
  switch (clock) {
    case ClockKind::kVirtual:
      return "virtual";
    case ClockKind::kPaced:
      return "paced";
    case ClockKind::kReal:
      return "real";
  }
  return "";
}

std::string NotValidated(const ExecuteReport& report) {
  std::vector<std::string> texts;
  if (report.replay) {
    texts.push_back(
        "ranks have run alone, each with made-up data in place of what others "
        "send: no loss and no gradient is checked");
    texts.push_back(
        "what comes from others, and every link and collective, takes the "
        "program's time without contention");
  }
  switch (report.clock) {
    case ClockKind::kVirtual:
      texts.push_back(
          "links and copies take the model's time without contention; passes "
          "take the CPU time of their own thread, so that what they do to each "
          "other is left out");
      break;
    case ClockKind::kPaced:
      texts.push_back(
          "passes only wait: no kernel has run, no gradient was computed; "
          "links are the model's");
      break;
    case ClockKind::kReal:
      if (report.replay) {
        texts.push_back(
            "devices that compute at the same time (power, memory of the "
            "host)");
      } else {
        texts.push_back(
            "threads of one machine stand for devices, its memory for their "
            "links");
      }
      break;
  }
  if (report.one_at_a_time && !report.replay) {
    texts.push_back(
        report.clock == ClockKind::kReal
            ? "one rank computes at a time: no overlap of ranks, the times are "
              "those of ranks that take turns"
            : "one rank computes at a time: how they overlap is computed");
  }
  if (report.green_contexts) {
    texts.push_back(
        "each rank has a part of one GPU: rates are those of the part beside "
        "busy others, and nothing promises that parts run at the same time");
  }
  if (report.reference) {
    texts.push_back(
        report.check ? "the float64 reference is of the first step; later ones "
                       "are held against a run of the same kernels alone"
                     : "the float64 reference is of the first step; later ones "
                       "are not held against anything");
    if (report.reference->tolerance > kFineTolerance) {
      texts.push_back(absl::StrFormat(
          "what is off by less than %.0e in the kernels drowns in the rounding "
          "of %s",
          report.reference->tolerance, report.type));
    }
  } else if (report.clock != ClockKind::kPaced && !report.replay) {
    texts.push_back(absl::StrCat(
        report.check ? "kernels that are wrong alike in the sequential run: no "
                       "float64 reference ("
                     : "what the kernels compute: no sequential run and no "
                       "float64 reference (",
        report.no_reference, ")"));
  }
  return absl::StrJoin(texts, "; ");
}

TraceOrigin OriginOf(const ExecuteReport& report) {
  TraceOrigin origin = {.clock = ClockName(report.clock),
                        .memory = std::string(kExecutorMemory)};
  const auto give = [&origin](std::vector<absl::string_view> times) {
    for (const absl::string_view each : times) origin.given.emplace_back(each);
  };
  switch (report.clock) {
    case ClockKind::kVirtual:
      // Every operation starts when its inputs are there.
      give({kTransferTimes, kCopyTimes, kSynchronisationTimes, kGapTimes});
      break;
    case ClockKind::kPaced:
      give({kKernelTimes, kTransferTimes, kCopyTimes, kSynchronisationTimes,
            kOptimizerTimes});
      break;
    case ClockKind::kReal:
      if (report.replay) give({kTransferTimes, kSynchronisationTimes});
      break;
  }
  if (report.replay && report.replay->ranks.size() == 1 &&
      report.report.pp > 1) {
    origin.only_rank = absl::StrCat(report.replay->ranks[0].rank);
  }
  return origin;
}

std::string HowExecuted(const ExecuteReport& report) {
  std::string how = absl::StrCat(ClockName(report.clock), " clock, ");
  if (report.replay) {
    const std::vector<ReplayedRank>& ranks = report.replay->ranks;
    absl::StrAppend(&how, ranks.size() > 1
                              ? "every rank alone, one after the other"
                              : absl::StrCat("rank ", ranks[0].rank, " alone"));
  } else {
    absl::StrAppend(&how, report.transport,
                    report.one_at_a_time ? ", one computes at a time" : "",
                    report.green_contexts ? ", a green context each" : "");
  }
  if (!report.device.empty()) absl::StrAppend(&how, ", ", report.device);
  if (!report.type.empty()) absl::StrAppend(&how, ", ", report.type);
  if (!report.libraries.empty()) {
    absl::StrAppend(&how, " (", report.libraries, ")");
  }
  return how;
}

std::string ReplayInWords(const ExecuteReport& report) {
  const ReplayedRun& replay = *report.replay;
  if (report.clock == ClockKind::kVirtual) {
    return "1 pass: what a rank takes does not depend on when messages come";
  }
  return absl::StrFormat(
      "%d pass%s; arrivals then changed by %s at most (%s of a step)%s",
      replay.passes, replay.passes == 1 ? "" : "es",
      FormatSeconds(replay.change_s),
      FormatPercent(replay.change_s / report.report.iteration_s),
      replay.consistent ? ""
                        : ": NOT CONSISTENT, the times of passes change from "
                          "run to run");
}

std::optional<double> SpanErrorOf(const ExecuteReport& report, int rank) {
  if (report.predicted_span_s.empty() || report.predicted_span_s[rank] <= 0) {
    return std::nullopt;
  }
  return report.report.ranks[rank].span_s / report.predicted_span_s[rank] - 1;
}

namespace {

Json ReplayJson(const ExecuteReport& report) {
  if (!report.replay) return nullptr;
  const ReplayedRun& replay = *report.replay;
  Json ranks = Json::array();
  for (const ReplayedRank& each : replay.ranks) {
    ranks.push_back({{"rank", each.rank},
                     {"span_s", each.times.span_s()},
                     {"composed_span_s", report.report.ranks[each.rank].span_s},
                     {"late_s", each.late_s},
                     {"change_s", each.change_s}});
  }
  return {{"ranks", ranks},
          {"passes", replay.passes},
          {"change_s", replay.change_s},
          {"consistent", replay.consistent}};
}

std::string ReplayText(const ExecuteReport& report) {
  const ReplayedRun& replay = *report.replay;
  std::string text =
      absl::StrCat("replay        ", ReplayInWords(report), "\n");
  for (const ReplayedRank& each : replay.ranks) {
    absl::StrAppendFormat(&text, "              rank %d: span %s", each.rank,
                          FormatSeconds(report.report.ranks[each.rank].span_s));
    if (report.clock == ClockKind::kReal) {
      absl::StrAppend(&text, " composed, ", FormatSeconds(each.times.span_s()),
                      " in its own run");
    }
    if (const std::optional<double> error = SpanErrorOf(report, each.rank)) {
      absl::StrAppendFormat(&text, ", %s predicted (%+.2f %%)",
                            FormatSeconds(report.predicted_span_s[each.rank]),
                            100 * *error);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

bool HasOwnerBytes(const ExecuteReport& report) {
  return std::any_of(report.owner_bytes.begin(), report.owner_bytes.end(),
                     [](double bytes) { return bytes > 0; });
}

std::string HostPeaksText(const ExecuteReport& report) {
  if (!HasHostPeaks(report)) return "";
  std::string text;
  const char* head = "on the host   ";
  for (size_t rank = 0; rank < report.peak_host_bytes.size(); ++rank) {
    if (report.peak_bytes[rank] <= 0) continue;  // has not run
    absl::StrAppend(&text, std::exchange(head, "              "), "rank ", rank,
                    ": ", FormatBytes(report.peak_host_bytes[rank]));
    if (const std::optional<double> error = HostPeakErrorOf(report, rank)) {
      absl::StrAppendFormat(&text, ", %s predicted (%+.2f %%)",
                            FormatBytes(report.predicted_peak_host_bytes[rank]),
                            100 * *error);
    }
    absl::StrAppend(&text, "\n");
  }
  return text;
}

}  // namespace

std::string ExecuteReportToJson(const ExecuteReport& report,
                                const std::vector<double>& step_s) {
  Json out = ReportTree(report.report);
  Json peaks = Json::array();
  Json on_host = Json::array();
  for (size_t rank = 0; rank < report.peak_bytes.size(); ++rank) {
    const bool ran = report.peak_bytes[rank] > 0;
    peaks.push_back(ran ? Json(report.peak_bytes[rank]) : Json());
    on_host.push_back(ran ? Json(report.peak_host_bytes[rank]) : Json());
  }
  if (!peaks.empty()) out["peak_memory_bytes"] = std::move(peaks);
  if (HasHostPeaks(report)) out["peak_host_bytes"] = std::move(on_host);
  Json& execute = out["execute"];
  execute["clock"] = ClockName(report.clock);
  execute["transport"] = report.transport;
  execute["device"] = report.device;
  execute["libraries"] = report.libraries;
  execute["type"] = report.type.empty() ? Json() : Json(report.type);
  execute["steps"] = report.steps;
  execute["step_s"] = step_s;
  execute["predicted_iteration_s"] = report.predicted_iteration_s
                                         ? Json(*report.predicted_iteration_s)
                                         : Json();
  execute["error"] =
      report.predicted_iteration_s ? Json(ErrorOf(report)) : Json();
  execute["predicted_interval_s"] = IntervalToJson(report.predicted_interval);
  execute["steps_inside"] = report.predicted_interval
                                ? Json(CountInside(report, step_s).inside)
                                : Json();
  execute["predicted_span_s"] =
      report.predicted_span_s.empty() ? Json() : Json(report.predicted_span_s);
  execute["predicted_peak_activations"] = report.predicted_peak_activations;
  execute["one_at_a_time"] = report.one_at_a_time;
  execute["replay"] = ReplayJson(report);
  execute["peak_bytes"] = report.peak_bytes;
  execute["predicted_peak_bytes"] = report.predicted_peak_bytes;
  execute["resident_bytes"] = report.resident_bytes;
  execute["message_bytes"] = report.message_bytes;
  if (report.clock != ClockKind::kPaced) {
    execute["needed_bytes"] = report.needed_bytes;
  }
  if (HasOwnerBytes(report)) execute["owner_bytes"] = report.owner_bytes;
  if (HasHostPeaks(report)) {
    execute["peak_host_bytes"] = report.peak_host_bytes;
    execute["predicted_peak_host_bytes"] = report.predicted_peak_host_bytes;
  }
  execute["wall_s"] = report.wall_s;
  if (report.clock == ClockKind::kPaced) execute["late_s"] = report.late_s;
  if (report.clock == ClockKind::kReal) {
    execute["preemptions"] = report.preemptions;
  }
  if (report.check) {
    const TrainingCheck& check = *report.check;
    execute["check"] = {{"agrees", check.ok()},
                        {"same_order", check.same_order},
                        {"bits_owed", check.bits_owed},
                        {"same_bits", check.same_bits},
                        {"steps_in_full", check.steps_in_full},
                        {"missing", check.missing},
                        {"loss_error", check.loss_error},
                        {"first_gradient_error", check.first_gradient_error},
                        {"gradient_error", check.gradient_error},
                        {"weight_error", check.weight_error},
                        {"tolerance", check.tolerance},
                        {"later_tolerance", check.later_tolerance},
                        {"weight_tolerance", check.weight_tolerance},
                        {"losses", check.losses},
                        {"sequential_losses", check.sequential_losses}};
  } else {
    execute["check"] = nullptr;
  }
  execute["reference"] = nullptr;
  if (report.reference) {
    const ReferenceCheck& check = *report.reference;
    execute["reference"] = {
        {"agrees", check.ok()},
        {"loss", check.loss},
        {"reference_loss", check.reference_loss},
        {"missing", check.missing},
        {"loss_error", check.loss_error()},
        {"gradient_error", check.gradient_error},
        {"worst_gradient", check.worst_gradient},
        {"weight_error",
         check.weight_error ? Json(*check.weight_error) : Json()},
        {"worst_weight", check.worst_weight},
        {"tolerance", check.tolerance}};
  }
  execute["not_validated"] = NotValidated(report);
  return out.dump(2);
}

std::string ExecuteReportToText(const ExecuteReport& report,
                                const std::vector<double>& step_s) {
  std::string text = ReportToText(report.report);
  absl::StrAppend(&text, "\nexecuted      ", report.steps, " steps, ",
                  HowExecuted(report), "\n");
  std::vector<std::string> steps;
  for (const double seconds : step_s) steps.push_back(FormatSeconds(seconds));
  absl::StrAppend(&text, "steps         ");
  for (const std::string& step : steps) absl::StrAppend(&text, step, "  ");
  absl::StrAppend(&text, "\n");
  if (report.predicted_iteration_s) {
    absl::StrAppendFormat(
        &text, "predicted     %s a step by the %s engine, %+.2f %%\n",
        FormatSeconds(*report.predicted_iteration_s), report.predicted_by,
        100 * ErrorOf(report));
  }
  if (report.predicted_interval) {
    absl::StrAppend(&text, "interval      90 % of steps: ",
                    IntervalInWords(report, step_s), "\n");
  }
  if (report.check) {
    const TrainingCheck& check = *report.check;
    absl::StrAppend(&text, "gradients     ", CheckInWords(report), "\n");
    absl::StrAppend(&text, "loss         ");
    for (const double loss : check.losses) {
      absl::StrAppendFormat(&text, " %.6f", loss);
    }
    absl::StrAppend(&text, "\n");
  }
  if (report.reference) {
    absl::StrAppend(&text, "reference     ",
                    ReferenceInWords(*report.reference), "\n");
  }
  if (report.replay) absl::StrAppend(&text, ReplayText(report));
  const char* head = "memory peak   ";
  for (size_t rank = 0; rank < report.peak_bytes.size(); ++rank) {
    if (report.peak_bytes[rank] <= 0) continue;  // has not run
    absl::StrAppend(&text, std::exchange(head, "              "), "rank ", rank,
                    ": ", FormatBytes(report.peak_bytes[rank]));
    if (const std::optional<double> error = PeakErrorOf(report, rank)) {
      absl::StrAppendFormat(&text, ", %s predicted (%+.2f %%)",
                            FormatBytes(report.predicted_peak_bytes[rank]),
                            100 * *error);
    }
    absl::StrAppend(&text, "; of it weights and optimizer ",
                    FormatBytes(report.resident_bytes[rank]),
                    "; messages beside it ",
                    FormatBytes(report.message_bytes[rank]));
    if (HasOwnerBytes(report)) {
      absl::StrAppend(&text, "; its shard on the host ",
                      FormatBytes(report.owner_bytes[rank]));
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppend(&text, HostPeaksText(report));
  if (report.clock == ClockKind::kPaced) {
    absl::StrAppend(&text, "woke up late  by ", FormatSeconds(report.late_s),
                    " at most\n");
  }
  if (report.clock == ClockKind::kReal) {
    absl::StrAppend(&text, "preempted     ", report.preemptions,
                    " times; above 0 the times are not to be compared\n");
  }
  absl::StrAppend(&text, "not validated ", NotValidated(report), "\n");
  return text;
}

}  // namespace pipewright
