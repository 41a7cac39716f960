// RunsSvg and RunsHtml (run_summary.h).
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/compare/run_summary.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

constexpr size_t kMaxRunRows = 512;
constexpr double kMargin = 12;
constexpr double kNames = 170;  // width of the names of runs
constexpr double kPanel = 300;  // width of the errors
constexpr double kRow = 18;
constexpr double kHead = 46;
constexpr double kFoot = 46;
// The goals for the median and for the worst error.
constexpr double kMedianGoal = 0.05;
constexpr double kWorstGoal = 0.10;

// Errors from -limit to +limit, in whole 5 %.
double LimitOf(const RunsSummary& summary) {
  double most = kWorstGoal;
  for (const RanksSummary& size : summary.sizes) {
    for (const RepeatedRun& run : size.runs) {
      most = std::max({most, -run.least_error, run.most_error});
    }
  }
  return std::ceil(most * 1.05 / 0.05) * 0.05;
}

// " in the median of 3, -1.00 % to +2.00 %"; "" of one.
std::string SpreadText(const RepeatedRun& run) {
  if (run.executions == 1) return "";
  return absl::StrCat(" in the median of ", run.executions, ", ",
                      FormatChange(run.least_error), " to ",
                      FormatChange(run.most_error));
}

void Panel(const RanksSummary& size, double limit, double left, double bottom,
           Svg* svg) {
  const double zero = left + kNames + kPanel / 2;
  const auto place = [&](double error) {
    return zero + error / limit * kPanel / 2;
  };
  svg->Text(
      zero, kMargin + 14,
      absl::StrCat("pp ", size.pp, ": predicted over executed step, less 1"),
      {.anchor = "middle", .bold = true});
  for (const auto& [goal, opacity] :
       {std::pair(kWorstGoal, "0.08"), std::pair(kMedianGoal, "0.10")}) {
    svg->Rect(place(-goal), kHead, place(goal) - place(-goal), bottom - kHead,
              {.fill = kHues[0],
               .more = absl::StrCat(" fill-opacity=\"", opacity, "\"")});
  }
  Axis axis = {.low = -limit, .high = limit, .title = "per cent"};
  const int steps = static_cast<int>(std::lround(limit / 0.05));
  // Labels of their own width.
  const int every = steps > 6 ? 2 : 1;
  for (int step = -steps; step <= steps; ++step) {
    axis.ticks.push_back({step * 0.05, step % every != 0 ? ""
                                       : step == 0
                                           ? "0"
                                           : absl::StrFormat("%+d", step * 5)});
  }
  svg->XAxis(axis, left + kNames, kPanel, bottom);
  const Paint line = {.css = "line", .stroke = kInk};
  svg->Path(PathOf({"M", zero, kHead, "V", bottom}), line);
  double y = kHead + kRow / 2;
  for (const RepeatedRun& run : size.runs) {
    const ExecutedRow& row = run.row;
    const double x = place(row.error());
    const bool good = row.gradients_agree() && row.peaks_agree();
    svg->Text(left + kNames - 10, y + 4, RunName(row), {.anchor = "end"});
    if (run.executions > 1) {
      svg->Path(
          PathOf({"M", place(run.least_error), y, "H", place(run.most_error),
                  "m0 -3v6M", place(run.least_error), y - 3, "v6"}),
          line);
    }
    svg->Path(PathOf({"M", zero, y, "H", x}), {.stroke = kHues[0], .width = 3});
    svg->Circle(
        x, y, 4.5,
        {.fill = good ? kHues[0] : kHues[1],
         .title = absl::StrCat(
             RunName(row), ": ", FormatChange(row.error()), SpreadText(run),
             good ? "" : ", gradients or activations not as they should")});
    y += kRow;
  }
}

std::string Card(absl::string_view heading, std::string figure,
                 std::string below) {
  return CardHtml({.heading = std::string(heading),
                   .figure = std::move(figure),
                   .notes = {std::move(below)}});
}

std::string SizeSection(const RanksSummary& size) {
  HtmlTable table;
  table.header = {"schedule",          "predicted (ms)",
                  "executed (ms)",     "error",
                  "control",           "times",
                  "of one execution",  "gradients",
                  "peak activations",  "vpp",
                  "layers of stages",  "microbatches",
                  "sequences of each", "slices"};
  for (const RepeatedRun& run : size.runs) {
    const ExecutedRow& row = run.row;
    table.rows.push_back(
        {row.schedule, absl::StrFormat("%.2f", row.predicted_s * 1e3),
         absl::StrFormat("%.2f", row.executed_s * 1e3),
         FormatChange(row.error()),
         run.control_s ? FormatChange(run.control_error()) : "",
         absl::StrCat(run.executions),
         absl::StrCat(FormatChange(run.least_error), " to ",
                      FormatChange(run.most_error)),
         row.gradients, row.peak_activations, absl::StrCat(row.vpp), row.layers,
         absl::StrCat(row.microbatches), absl::StrCat(row.microbatch_size),
         absl::StrCat(row.slices)});
  }
  const std::string ties =
      size.ties.empty()
          ? "none"
          : absl::StrCat(size.ties.size(), ": ", PairsText(size.ties, " – "));
  return SectionHtml(
      absl::StrCat("pp", size.pp),
      absl::StrCat("pp ", size.pp, ", the fastest predicted first"),
      absl::StrCat(
          TableHtml(table, kMaxRunRows),
          "<p>Error: ", absl::StrFormat("%.2f", size.median_error * 100),
          " % in the median, ", FormatChange(size.worst_error), " at worst (",
          EscapeXml(size.worst), ").</p>\n",
          size.control ? absl::StrCat("<p>Control: ",
                                      EscapeXml(ControlInWords(*size.control)),
                                      ".</p>\n")
                       : "",
          "<p>Order: Kendall's ", TauInWords(size.pairs, size.tau), " over ",
          size.pairs, " pairs; not as predicted: ",
          EscapeXml(size.swapped.empty() ? "none"
                                         : PairsText(size.swapped, " – ")),
          ".</p>\n<p class=\"quiet\">Ties, predicted less than ",
          absl::StrFormat("%.0f", kTieShare * 100),
          " % apart and left out: ", EscapeXml(ties), ".</p>\n"));
}

// What calibration adds is what lies between both.
std::string ControlSection(const RunsSummary& summary) {
  std::string body;
  if (summary.control) {
    const ControlSummary& control = *summary.control;
    HtmlTable table;
    table.header = {"", "error in the median", "at worst", "Kendall's tau"};
    int pairs = 0;
    int swapped = 0;
    for (const RanksSummary& size : summary.sizes) {
      pairs += size.pairs;
      swapped += static_cast<int>(size.swapped.size());
    }
    const auto row = [&](absl::string_view name, double median, double worst,
                         absl::string_view whose, int of_pairs, double tau) {
      table.rows.push_back(
          {std::string(name), absl::StrFormat("%.2f %%", median * 100),
           absl::StrCat(FormatChange(worst), " (", whose, ")"),
           of_pairs > 0 ? absl::StrFormat("%.3f over %d pairs", tau, of_pairs)
                        : "no pair"});
    };
    row("prediction", summary.median_error, summary.worst_error, summary.worst,
        pairs, pairs > 0 ? 1 - 2.0 * swapped / pairs : 0);
    row("control", control.median_error, control.worst_error, control.worst,
        control.pairs, control.tau);
    body = absl::StrCat(
        "<p>A prediction without any calibration: ", EscapeXml(kControlMeaning),
        ".</p>\n", TableHtml(table, kMaxRunRows));
  }
  for (const std::string& run : summary.without_control) {
    absl::StrAppend(&body, "<p class=\"quiet\">No control of ", EscapeXml(run),
                    "</p>\n");
  }
  return body.empty() ? "" : SectionHtml("control", "Control", body);
}

std::string Provenance(const RunsSummary& summary) {
  return SectionHtml(
      "provenance", "Where the numbers are from",
      WordsHtml({{"machine", absl::StrJoin(summary.devices, "; ")},
                 {"libraries", absl::StrJoin(summary.libraries, "; ")},
                 {"pass times", absl::StrJoin(summary.profiles, "; ")},
                 {"executed", summary.first_date == summary.last_date
                                  ? summary.first_date
                                  : absl::StrCat(summary.first_date, " to ",
                                                 summary.last_date)},
                 {"pipewright", absl::StrJoin(summary.versions, ", ")},
                 {"conditions", ConditionsInWords(summary)},
                 {"shortest pass", FormatSeconds(summary.shortest_pass_s)},
                 {"wall time of the runs", FormatSeconds(summary.wall_s)}}));
}

}  // namespace

std::string RunsSvg(const RunsSummary& summary) {
  size_t most = 0;
  for (const RanksSummary& size : summary.sizes) {
    most = std::max(most, size.runs.size());
  }
  const double bottom = kHead + kRow * static_cast<double>(most);
  const double column = kNames + kPanel + 2 * kMargin;
  Svg svg;
  double left = kMargin;
  for (const RanksSummary& size : summary.sizes) {
    Panel(size, LimitOf(summary), left, bottom, &svg);
    left += column;
  }
  return svg.Finish(column * static_cast<double>(summary.sizes.size()),
                    bottom + kFoot,
                    "error of the predicted step time of each run");
}

std::string RunsHtml(const RunsSummary& summary) {
  int pairs = 0;
  int swapped = 0;
  size_t ties = 0;
  for (const RanksSummary& size : summary.sizes) {
    pairs += size.pairs;
    swapped += static_cast<int>(size.swapped.size());
    ties += size.ties.size();
  }
  const double tau = pairs > 0 ? 1 - 2.0 * swapped / pairs : 0;
  const auto of_runs = [&](int count) {
    return absl::StrCat(count, " of ", summary.runs);
  };
  std::string body = absl::StrCat(
      HeaderHtml("Predicted and executed",
                 absl::StrCat(
                     summary.runs, " runs of schedules with real kernels, ",
                     summary.executions == summary.runs
                         ? ""
                         : absl::StrCat("executed ", summary.executions,
                                        " times (the median of each counts), "),
                     "each held against the step time that was predicted from "
                     "measured pass times.")),
      "<section class=\"cards\">\n",
      Card("Error in the median",
           absl::StrFormat("%.2f %%", summary.median_error * 100),
           "of the step time, over all runs"),
      Card("Error at worst", FormatChange(summary.worst_error), summary.worst),
      Card("Order of schedules", absl::StrFormat("%.3f", tau),
           absl::StrCat("Kendall's tau over ", pairs, " pairs, ", ties,
                        " ties left out")),
      Card("Gradients", of_runs(summary.agree),
           absl::StrCat("as in the sequential run, ", summary.same_bits,
                        " bit for bit")),
      Card("Peak activations", of_runs(summary.peaks_agree),
           "equal on every rank"),
      "</section>\n");
  absl::StrAppend(&body, ControlSection(summary));
  absl::StrAppend(
      &body,
      SectionHtml("errors", "Errors",
                  absl::StrCat("<p class=\"quiet\">Right of zero: predicted "
                               "too slow. Shaded: 5 % and 10 %. Thin lines: "
                               "single executions.</p>\n",
                               PictureHtml(RunsSvg(summary)))));
  for (const RanksSummary& size : summary.sizes) {
    absl::StrAppend(&body, SizeSection(size));
  }
  absl::StrAppend(&body, Provenance(summary));
  return PageHtml("Predicted and executed", body);
}

}  // namespace pipewright
