#include "sim/cli/execute_html.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/quantity.h"
#include "sim/explain/page_extras.h"
#include "sim/report/format.h"
#include "sim/report/html.h"
#include "sim/report/html_parts.h"

namespace pipewright {
namespace {

constexpr size_t kMaxRows = 256;

using WordPairs = std::vector<std::pair<std::string, std::string>>;

std::string WordList(const WordPairs& words) {
  std::string list = "<dl class=\"words\">\n";
  for (const auto& [word, meaning] : words) {
    absl::StrAppend(&list, "<dt>", EscapeXml(word), "</dt><dd>",
                    EscapeXml(meaning), "</dd>\n");
  }
  return absl::StrCat(list, "</dl>\n");
}

std::string SignedPercent(double part) {
  return absl::StrFormat("%+.2f %%", 100 * part);
}

std::string HowSection(const ExecuteReport& report,
                       const std::vector<double>& step_s) {
  std::vector<std::string> steps;
  for (const double seconds : step_s) steps.push_back(FormatSeconds(seconds));
  WordPairs words = {{"how", HowExecuted(report)},
                     {"steps", absl::StrJoin(steps, ", ")}};
  if (report.predicted_iteration_s) {
    const double predicted_s = *report.predicted_iteration_s;
    words.emplace_back(
        "predicted",
        absl::StrCat(FormatSeconds(predicted_s), " a step by the ",
                     report.predicted_by, " engine, ",
                     SignedPercent(predicted_s / report.report.iteration_s - 1),
                     " of what was measured"));
  }
  if (report.predicted_interval) {
    words.emplace_back("90 % of steps", IntervalInWords(report, step_s));
  }
  if (report.replay) {
    words.emplace_back("replay", ReplayInWords(report));
  }
  words.emplace_back("not validated", NotValidated(report));
  return SectionHtml("executed", "Executed", WordList(words));
}

std::string ReferenceSentence(const ExecuteReport& report) {
  if (!report.reference) return "";
  const ReferenceCheck& check = *report.reference;
  return absl::StrCat(check.ok() ? "<p>" : "<p class=\"bad\">",
                      "Gradients of the first step ",
                      EscapeXml(ReferenceInWords(check)), ".</p>\n");
}

std::string CheckSection(const ExecuteReport& report) {
  if (!report.check) {
    return SectionHtml(
        "check", "Check against the sequential run",
        absl::StrCat("<p>Not made",
                     report.reference ? ".</p>\n"
                                      : ": nothing says that the gradients are "
                                        "right.</p>\n",
                     ReferenceSentence(report)));
  }
  const TrainingCheck& check = *report.check;
  HtmlTable table;
  table.header = {"step", "loss", "sequential run"};
  for (size_t step = 0; step < check.losses.size(); ++step) {
    table.rows.push_back(
        {absl::StrCat(step), absl::StrFormat("%.6f", check.losses[step]),
         absl::StrFormat("%.6f", check.sequential_losses[step])});
  }
  return SectionHtml(
      "check", "Check against the sequential run",
      absl::StrCat(
          check.ok() ? "<p>" : "<p class=\"bad\">", "Gradients ",
          EscapeXml(CheckInWords(report)),
          ".</p>\n<p class=\"quiet\">Allowed: ",
          check.bits_owed
              ? std::string("not a bit, as gradients are added up in "
                            "the same order")
              : absl::StrFormat("%.0e for losses and the first gradients, %.0e "
                                "for later ones, %.0e for weights",
                                check.tolerance, check.later_tolerance,
                                check.weight_tolerance),
          ".</p>\n", ReferenceSentence(report), TableHtml(table, kMaxRows)));
}

std::string MeasuredSection(const ExecuteReport& report) {
  const bool predicted = !report.predicted_span_s.empty();
  const bool memory = !report.peak_bytes.empty();
  if (!predicted && !memory) return "";
  HtmlTable table;
  table.header = {"rank", "span"};
  if (predicted) {
    table.header.push_back("predicted");
    table.header.push_back("measured over predicted");
  }
  const bool memory_predicted = memory && !report.predicted_peak_bytes.empty();
  if (memory) table.header.push_back("memory peak");
  if (memory_predicted) {
    table.header.push_back("predicted");
    table.header.push_back("measured over predicted");
  }
  const bool host = memory && HasHostPeaks(report);
  if (host) {
    table.header.push_back("on the host");
    if (memory_predicted) {
      table.header.push_back("predicted");
      table.header.push_back("measured over predicted");
    }
  }
  for (size_t rank = 0; rank < report.report.ranks.size(); ++rank) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {absl::StrCat(rank), FormatSeconds(report.report.ranks[rank].span_s)};
    if (predicted) {
      const std::optional<double> error =
          SpanErrorOf(report, static_cast<int>(rank));
      row.push_back(FormatSeconds(report.predicted_span_s[rank]));
      row.push_back(error ? SignedPercent(*error) : "");
    }
    if (!memory) continue;
    row.push_back(report.peak_bytes[rank] > 0
                      ? FormatBytes(report.peak_bytes[rank])
                      : "has not run");
    const auto predict = [&row](double bytes, std::optional<double> error) {
      row.push_back(FormatBytes(bytes));
      row.push_back(error ? SignedPercent(*error) : "");
    };
    if (memory_predicted) {
      predict(report.predicted_peak_bytes[rank], PeakErrorOf(report, rank));
    }
    if (!host) continue;
    row.push_back(report.peak_bytes[rank] > 0
                      ? FormatBytes(report.peak_host_bytes[rank])
                      : "has not run");
    if (memory_predicted) {
      predict(report.predicted_peak_host_bytes[rank],
              HostPeakErrorOf(report, rank));
    }
  }
  return SectionHtml("measured", "Measured", TableHtml(table, kMaxRows));
}

}  // namespace

std::string ExecuteTitle(const ExecuteReport& report) {
  const Report& run = report.report;
  std::string title = absl::StrCat(run.schedule, ", pp ", run.pp);
  if (run.vpp > 1) absl::StrAppend(&title, ", vpp ", run.vpp);
  if (run.dp > 1) absl::StrAppend(&title, ", dp ", run.dp);
  return absl::StrCat(title, ", ", run.microbatches,
                      " microbatches, executed, ", ClockName(report.clock),
                      " clock");
}

std::string ExecutePage(const ExecuteReport& report, const Program& program,
                        const std::vector<TraceOp>& ops,
                        const std::vector<double>& step_s) {
  PageExtras extras;
  extras.path = CriticalPathOf(program, ops);
  return ReportHtml(report.report, program, ops,
                    absl::StrCat(HowSection(report, step_s),
                                 CheckSection(report), MeasuredSection(report)),
                    &extras);
}

}  // namespace pipewright
