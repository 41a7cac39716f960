#include "execute/report/execute_report.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/explain/page_extras.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/html.h"
#include "sim/report/html_parts.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

using Values = std::vector<double>;  // [rank]

constexpr size_t kMaxRows = 256;

std::string StepsText(const ExecuteReport& report, const char* between) {
  return absl::StrJoin(report.step_s, between,
                       [](std::string* out, double seconds) {
                         out->append(FormatSeconds(seconds));
                       });
}

bool AnyAbove0(const Values& values) {
  return std::any_of(values.begin(), values.end(),
                     [](double value) { return value > 0; });
}

// True if something was on the host, or should have been.
bool HasHostPeaks(const ExecuteReport& report) {
  return !report.trained.peak_host_bytes.empty() &&
         (AnyAbove0(report.trained.peak_host_bytes) ||
          AnyAbove0(report.predicted_peak_host_bytes));
}

// `measured` over predicted, minus 1; nothing if nothing was predicted.
std::optional<double> ErrorOf(double measured, const Values& predicted,
                              size_t rank) {
  if (predicted.empty() || predicted[rank] <= 0) return std::nullopt;
  return measured / predicted[rank] - 1;
}

// ", 2 GiB predicted (+0.10 %)"; "" if nothing was predicted.
std::string BesidePredicted(std::string (*format)(double), double measured,
                            const Values& predicted, size_t rank) {
  const std::optional<double> error = ErrorOf(measured, predicted, rank);
  if (!error) return "";
  return absl::StrCat(", ", format(predicted[rank]), " predicted (",
                      FormatChange(*error), ")");
}

template <typename Value>
Json OrNull(const std::optional<Value>& value) {
  return value ? Json(*value) : Json();
}

Json OrNull(const Values& values) {
  return values.empty() ? Json() : Json(values);
}

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

Json CheckJson(const TrainingCheck* check) {
  if (check == nullptr) return nullptr;
  return {{"agrees", check->ok()},
          {"same_order", check->same_order},
          {"bits_owed", check->bits_owed},
          {"same_bits", check->same_bits},
          {"steps_in_full", check->steps_in_full},
          {"missing", check->missing},
          {"loss_error", check->loss_error},
          {"first_gradient_error", check->first_gradient_error},
          {"gradient_error", check->gradient_error},
          {"weight_error", check->weight_error},
          {"tolerance", check->tolerance},
          {"later_tolerance", check->later_tolerance},
          {"weight_tolerance", check->weight_tolerance},
          {"losses", check->losses},
          {"sequential_losses", check->sequential_losses}};
}

Json ReferenceJson(const std::optional<ReferenceCheck>& check) {
  if (!check) return nullptr;
  return {{"agrees", check->ok()},
          {"loss", check->loss},
          {"reference_loss", check->reference_loss},
          {"missing", check->missing},
          {"loss_error", check->loss_error()},
          {"gradient_error", check->gradient_error},
          {"worst_gradient", check->worst_gradient},
          {"weight_error", OrNull(check->weight_error)},
          {"worst_weight", check->worst_weight},
          {"tolerance", check->tolerance}};
}

// Peaks of the ranks that have run, null of the others.
Json PeaksJson(const ExecuteReport& report, const Values& peaks) {
  Json out = Json::array();
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    out.push_back(report.HasRun(rank) ? Json(peaks[rank]) : Json());
  }
  return out;
}

// A line of the text; without a label it goes on with that of before.
std::string Line(absl::string_view label, absl::string_view text) {
  return absl::StrFormat("%-14s%s\n", label, text);
}

std::string ReplayLines(const ExecuteReport& report) {
  std::string text = Line("replay", ReplayInWords(report));
  for (const ReplayedRank& each : report.replay->ranks) {
    const double span_s = report.report.ranks[each.rank].span_s;
    std::string words =
        absl::StrCat("rank ", each.rank, ": span ", FormatSeconds(span_s));
    if (report.clock == ClockKind::kReal) {
      absl::StrAppend(&words, " composed, ", FormatSeconds(each.times.span_s()),
                      " in its own run");
    }
    absl::StrAppend(
        &words, BesidePredicted(FormatSeconds, span_s, report.predicted_span_s,
                                each.rank));
    text += Line("", words);
  }
  return text;
}

// One for each rank that has run; `more` stands behind its peak.
std::string PeakLines(const ExecuteReport& report, const char* label,
                      const Values& peaks, const Values& predicted,
                      const std::function<std::string(size_t)>& more) {
  std::string text;
  for (size_t rank = 0; rank < peaks.size(); ++rank) {
    if (!report.HasRun(rank)) continue;
    text += Line(
        std::exchange(label, ""),
        absl::StrCat("rank ", rank, ": ", FormatBytes(peaks[rank]),
                     BesidePredicted(FormatBytes, peaks[rank], predicted, rank),
                     more(rank)));
  }
  return text;
}

std::string MemoryLines(const ExecuteReport& report) {
  const TrainedRun& trained = report.trained;
  const auto beside = [&trained](size_t rank) {
    std::string words = absl::StrCat("; of it weights and optimizer ",
                                     FormatBytes(trained.resident_bytes[rank]),
                                     "; messages beside it ",
                                     FormatBytes(trained.message_bytes[rank]));
    if (AnyAbove0(trained.owner_bytes)) {
      absl::StrAppend(&words, "; its shard on the host ",
                      FormatBytes(trained.owner_bytes[rank]));
    }
    return words;
  };
  std::string text = PeakLines(report, "memory peak", trained.peak_bytes,
                               report.predicted_peak_bytes, beside);
  if (!HasHostPeaks(report)) return text;
  return text + PeakLines(report, "on the host", trained.peak_host_bytes,
                          report.predicted_peak_host_bytes,
                          [](size_t) { return ""; });
}

std::string HowSection(const ExecuteReport& report) {
  HtmlWords words = {{"how", HowExecuted(report)},
                     {"steps", StepsText(report, ", ")}};
  if (report.predicted_iteration_s) {
    words.emplace_back("predicted", absl::StrCat(PredictionInWords(report),
                                                 " of what was measured"));
  }
  if (report.predicted_interval) {
    words.emplace_back("90 % of steps", IntervalInWords(report));
  }
  if (report.replay) words.emplace_back("replay", ReplayInWords(report));
  words.emplace_back("not validated", NotValidated(report));
  return SectionHtml("executed", "Executed", WordsHtml(words));
}

// <p>, red if the check that it tells of does not hold.
std::string CheckParagraph(bool ok, absl::string_view of,
                           absl::string_view words) {
  return absl::StrCat(ok ? "<p>" : "<p class=\"bad\">", "Gradients ", of,
                      EscapeXml(words), ".</p>\n");
}

std::string SequentialHtml(const TrainingCheck& check,
                           const std::string& words) {
  return absl::StrCat(
      CheckParagraph(check.ok(), "", words), "<p class=\"quiet\">Allowed: ",
      check.bits_owed
          ? std::string("not a bit, as gradients are added up in the same "
                        "order")
          : absl::StrFormat("%.0e for losses and the first gradients, %.0e "
                            "for later ones, %.0e for weights",
                            check.tolerance, check.later_tolerance,
                            check.weight_tolerance),
      ".</p>\n");
}

std::string LossTable(const TrainingCheck& check) {
  HtmlTable table;
  table.header = {"step", "loss", "sequential run"};
  for (size_t step = 0; step < check.losses.size(); ++step) {
    table.rows.push_back(
        {absl::StrCat(step), absl::StrFormat("%.6f", check.losses[step]),
         absl::StrFormat("%.6f", check.sequential_losses[step])});
  }
  return TableHtml(table, kMaxRows);
}

std::string CheckSection(const ExecuteReport& report) {
  const std::optional<ReferenceCheck>& reference = report.trained.reference;
  const TrainingCheck* const check = report.check();
  std::string html;
  if (check != nullptr) {
    html = SequentialHtml(*check, CheckInWords(report));
  } else {
    html = absl::StrCat("<p>Not made",
                        reference ? ""
                                  : ": nothing says that the gradients are "
                                    "right",
                        ".</p>\n");
  }
  if (reference) {
    html += CheckParagraph(reference->ok(), "of the first step ",
                           ReferenceInWords(*reference));
  }
  if (check != nullptr) html += LossTable(*check);
  return SectionHtml("check", "Check against the sequential run", html);
}

std::string MeasuredSection(const ExecuteReport& report) {
  const bool memory = !report.trained.peak_bytes.empty();
  if (report.predicted_span_s.empty() && !memory) return "";
  HtmlTable table;
  table.header = {"rank"};
  Values spans;
  for (const RankReport& rank : report.report.ranks) {
    table.rows.push_back({absl::StrCat(spans.size())});
    spans.push_back(rank.span_s);
  }
  const auto add = [&table](const char* name, std::string (*format)(double),
                            const Values& measured, const Values& predicted,
                            const std::function<bool(size_t)>& has_run) {
    table.header.emplace_back(name);
    for (size_t rank = 0; rank < table.rows.size(); ++rank) {
      table.rows[rank].push_back(has_run(rank) ? format(measured[rank])
                                               : "has not run");
    }
    if (predicted.empty()) return;
    table.header.insert(table.header.end(),
                        {"predicted", "measured over predicted"});
    for (size_t rank = 0; rank < table.rows.size(); ++rank) {
      const auto error = has_run(rank)
                             ? ErrorOf(measured[rank], predicted, rank)
                             : std::nullopt;
      table.rows[rank].push_back(format(predicted[rank]));
      table.rows[rank].push_back(error ? FormatChange(*error) : "");
    }
  };
  add("span", FormatSeconds, spans, report.predicted_span_s,
      [](size_t) { return true; });
  const auto has_run = [&report](size_t rank) { return report.HasRun(rank); };
  if (memory) {
    add("memory peak", FormatBytes, report.trained.peak_bytes,
        report.predicted_peak_bytes, has_run);
  }
  if (HasHostPeaks(report)) {
    add("on the host", FormatBytes, report.trained.peak_host_bytes,
        report.predicted_peak_host_bytes, has_run);
  }
  return SectionHtml("measured", "Measured", TableHtml(table, kMaxRows));
}

}  // namespace

std::string ExecuteReportToJson(const ExecuteReport& report) {
  const TrainedRun& trained = report.trained;
  const bool host = HasHostPeaks(report);
  Json out = ReportTree(report.report);
  if (!trained.peak_bytes.empty()) {
    out["peak_memory_bytes"] = PeaksJson(report, trained.peak_bytes);
  }
  if (host) out["peak_host_bytes"] = PeaksJson(report, trained.peak_host_bytes);
  Json& execute = out["execute"];
  execute["clock"] = ClockName(report.clock);
  execute["transport"] = report.transport;
  execute["device"] = trained.device;
  execute["libraries"] = trained.libraries;
  execute["type"] = report.type.empty() ? Json() : Json(report.type);
  execute["steps"] = report.step_s.size();
  execute["step_s"] = report.step_s;
  execute["predicted_iteration_s"] = OrNull(report.predicted_iteration_s);
  execute["error"] =
      report.predicted_iteration_s ? Json(PredictionError(report)) : Json();
  execute["predicted_interval_s"] = IntervalToJson(report.predicted_interval);
  execute["steps_inside"] =
      report.predicted_interval ? Json(StepsInside(report)) : Json();
  execute["predicted_span_s"] = OrNull(report.predicted_span_s);
  execute["predicted_peak_activations"] = report.predicted_peak_activations;
  execute["one_at_a_time"] = report.one_at_a_time;
  execute["replay"] = ReplayJson(report);
  execute["peak_bytes"] = trained.peak_bytes;
  execute["predicted_peak_bytes"] = report.predicted_peak_bytes;
  execute["resident_bytes"] = trained.resident_bytes;
  execute["message_bytes"] = trained.message_bytes;
  if (report.clock != ClockKind::kPaced) {
    execute["needed_bytes"] = report.needed_bytes;
  }
  if (AnyAbove0(trained.owner_bytes)) {
    execute["owner_bytes"] = trained.owner_bytes;
  }
  if (host) {
    execute["peak_host_bytes"] = trained.peak_host_bytes;
    execute["predicted_peak_host_bytes"] = report.predicted_peak_host_bytes;
  }
  execute["wall_s"] = trained.run.wall_s;
  if (report.clock == ClockKind::kPaced) execute["late_s"] = trained.run.late_s;
  if (report.clock == ClockKind::kReal) {
    execute["preemptions"] = trained.run.preemptions;
  }
  execute["check"] = CheckJson(report.check());
  execute["reference"] = ReferenceJson(trained.reference);
  execute["not_validated"] = NotValidated(report);
  return out.dump(2);
}

std::string ExecuteReportToText(const ExecuteReport& report) {
  std::string text = absl::StrCat(ReportToText(report.report), "\n");
  const auto add = [&text](absl::string_view label, absl::string_view words) {
    text += Line(label, words);
  };
  add("executed",
      absl::StrCat(report.step_s.size(), " steps, ", HowExecuted(report)));
  add("steps", StepsText(report, "  ") + "  ");
  if (report.predicted_iteration_s) add("predicted", PredictionInWords(report));
  if (report.predicted_interval) {
    add("interval", absl::StrCat("90 % of steps: ", IntervalInWords(report)));
  }
  if (const TrainingCheck* const check = report.check()) {
    add("gradients", CheckInWords(report));
    add("loss",
        absl::StrJoin(check->losses, " ", [](std::string* out, double loss) {
          absl::StrAppendFormat(out, "%.6f", loss);
        }));
  }
  if (const auto& reference = report.trained.reference) {
    add("reference", ReferenceInWords(*reference));
  }
  if (report.replay) text += ReplayLines(report);
  text += MemoryLines(report);
  if (report.clock == ClockKind::kPaced) {
    add("woke up late",
        absl::StrCat("by ", FormatSeconds(report.trained.run.late_s),
                     " at most"));
  }
  if (report.clock == ClockKind::kReal) {
    add("preempted",
        absl::StrCat(report.trained.run.preemptions,
                     " times; above 0 the times are not to be compared"));
  }
  add("not validated", NotValidated(report));
  return text;
}

std::string ExecuteTitle(const ExecuteReport& report) {
  const Report& run = report.report;
  std::string title = absl::StrCat(run.schedule, ", pp ", run.pp);
  if (run.vpp > 1) absl::StrAppend(&title, ", vpp ", run.vpp);
  if (run.dp > 1) absl::StrAppend(&title, ", dp ", run.dp);
  return absl::StrCat(title, ", ", run.microbatches,
                      " microbatches, executed, ", ClockName(report.clock),
                      " clock");
}

std::string ExecutePage(const ExecuteReport& report, const Program& program) {
  const std::vector<TraceOp>& ops = report.trained.run.ops;
  PageExtras extras;
  extras.path = CriticalPathOf(program, ops);
  return ReportHtml(report.report, program, ops,
                    absl::StrCat(HowSection(report), CheckSection(report),
                                 MeasuredSection(report)),
                    &extras);
}

}  // namespace pipewright
