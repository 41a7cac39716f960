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

std::string InPercent(double share) {
  return absl::StrFormat("%+.2f %%", share * 100);
}

std::string SvgText(double x, double y, absl::string_view anchor,
                    absl::string_view text, absl::string_view more = "") {
  return absl::StrCat("<text class=\"ink\" x=\"", Px(x), "\" y=\"", Px(y),
                      "\" text-anchor=\"", anchor, "\" fill=\"#1A1A1A\"", more,
                      ">", EscapeXml(text), "</text>\n");
}

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
                      InPercent(run.least_error), " to ",
                      InPercent(run.most_error));
}

std::string Panel(const RanksSummary& size, double limit, double left,
                  double bottom) {
  const double zero = left + kNames + kPanel / 2;
  const auto place = [&](double error) {
    return zero + error / limit * kPanel / 2;
  };
  std::string out = SvgText(
      left + kNames + kPanel / 2, kMargin + 14, "middle",
      absl::StrCat("pp ", size.pp, ": predicted over executed step, less 1"),
      " font-weight=\"600\"");
  const auto band = [&](double goal, absl::string_view opacity) {
    absl::StrAppend(&out, "<rect",
                    RectShape(place(-goal), kHead, place(goal) - place(-goal),
                              bottom - kHead),
                    " fill=\"#0072B2\" fill-opacity=\"", opacity, "\"/>\n");
  };
  band(kWorstGoal, "0.08");
  band(kMedianGoal, "0.10");
  std::string ticks;
  const int steps = static_cast<int>(std::lround(limit / 0.05));
  // Labels of their own width.
  const int every = steps > 6 ? 2 : 1;
  for (int step = -steps; step <= steps; ++step) {
    const double x = place(step * 0.05);
    absl::StrAppend(&ticks, "M", Px(x), " ", Px(bottom), "v5");
    if (step % every != 0) continue;
    absl::StrAppend(
        &out, SvgText(x, bottom + 18, "middle",
                      step == 0 ? "0" : absl::StrFormat("%+d", step * 5)));
  }
  absl::StrAppend(&out, SvgText(zero, bottom + 34, "middle", "per cent"));
  absl::StrAppend(&out, "<path class=\"line\" d=\"M", Px(left + kNames), " ",
                  Px(bottom), "h", Px(kPanel), ticks, "M", Px(zero), " ",
                  Px(kHead), "V", Px(bottom),
                  "\" fill=\"none\" stroke=\"#1A1A1A\"/>\n");
  double y = kHead + kRow / 2;
  for (const RepeatedRun& run : size.runs) {
    const ExecutedRow& row = run.row;
    const double x = place(row.error());
    const bool good = row.gradients_agree() && row.peaks_agree();
    absl::StrAppend(&out,
                    SvgText(left + kNames - 10, y + 4, "end", RunName(row)));
    if (run.executions > 1) {
      absl::StrAppend(&out, "<path class=\"line\" d=\"M",
                      Px(place(run.least_error)), " ", Px(y), "H",
                      Px(place(run.most_error)), "m0 -3v6M",
                      Px(place(run.least_error)), " ", Px(y - 3),
                      "v6\" fill=\"none\" stroke=\"#1A1A1A\"/>\n");
    }
    absl::StrAppend(&out, "<path d=\"M", Px(zero), " ", Px(y), "H", Px(x),
                    "\" stroke=\"#0072B2\" stroke-width=\"3\"/>\n<circle cx=\"",
                    Px(x), "\" cy=\"", Px(y), "\" r=\"4.5\" fill=\"",
                    good ? "#0072B2" : "#D55E00", "\"><title>",
                    EscapeXml(RunName(row)), ": ", InPercent(row.error()),
                    SpreadText(run),
                    good ? "" : ", gradients or activations not as they should",
                    "</title></circle>\n");
    y += kRow;
  }
  return out;
}

std::string Card(absl::string_view heading, absl::string_view figure,
                 absl::string_view below) {
  return absl::StrCat("<div class=\"card\"><h3>", EscapeXml(heading),
                      "</h3><p class=\"figure\">", EscapeXml(figure),
                      "</p><p class=\"quiet\">", EscapeXml(below),
                      "</p></div>\n");
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
         absl::StrFormat("%.2f", row.executed_s * 1e3), InPercent(row.error()),
         run.control_s ? InPercent(run.control_error()) : "",
         absl::StrCat(run.executions),
         absl::StrCat(InPercent(run.least_error), " to ",
                      InPercent(run.most_error)),
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
          " % in the median, ", InPercent(size.worst_error), " at worst (",
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
           absl::StrCat(InPercent(worst), " (", whose, ")"),
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
  std::string items;
  const auto item = [&](absl::string_view word, absl::string_view text) {
    absl::StrAppend(&items, "<dt>", word, "</dt><dd>", EscapeXml(text),
                    "</dd>\n");
  };
  item("machine", absl::StrJoin(summary.devices, "; "));
  item("libraries", absl::StrJoin(summary.libraries, "; "));
  item("pass times", absl::StrJoin(summary.profiles, "; "));
  item("executed",
       summary.first_date == summary.last_date
           ? summary.first_date
           : absl::StrCat(summary.first_date, " to ", summary.last_date));
  item("pipewright", absl::StrJoin(summary.versions, ", "));
  item("conditions", ConditionsInWords(summary));
  item("shortest pass", FormatSeconds(summary.shortest_pass_s));
  item("wall time of the runs", FormatSeconds(summary.wall_s));
  return SectionHtml("provenance", "Where the numbers are from",
                     absl::StrCat("<dl class=\"words\">\n", items, "</dl>\n"));
}

}  // namespace

std::string RunsSvg(const RunsSummary& summary) {
  size_t most = 0;
  for (const RanksSummary& size : summary.sizes) {
    most = std::max(most, size.runs.size());
  }
  const double bottom = kHead + kRow * static_cast<double>(most);
  const double column = kNames + kPanel + 2 * kMargin;
  const double width = column * static_cast<double>(summary.sizes.size());
  const double height = bottom + kFoot;
  std::string out = absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", Px(width),
      " ", Px(height), "\" width=\"", Px(width), "\" height=\"", Px(height),
      "\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" "
      "role=\"img\" aria-label=\"error of the predicted step time of each "
      "run\">\n<rect class=\"paper\" width=\"100%\" height=\"100%\" "
      "fill=\"#FFFFFF\"/>\n");
  double left = kMargin;
  for (const RanksSummary& size : summary.sizes) {
    absl::StrAppend(&out, Panel(size, LimitOf(summary), left, bottom));
    left += column;
  }
  return out + "</svg>\n";
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
      "<header><h1>Predicted and executed</h1>\n<p class=\"quiet\">",
      summary.runs, " runs of schedules with real kernels, ",
      summary.executions == summary.runs
          ? ""
          : absl::StrCat("executed ", summary.executions,
                         " times (the median of each counts), "),
      "each held against the step time that was predicted from measured pass "
      "times.</p></header>\n"
      "<section class=\"cards\">\n",
      Card("Error in the median",
           absl::StrFormat("%.2f %%", summary.median_error * 100),
           "of the step time, over all runs"),
      Card("Error at worst", InPercent(summary.worst_error), summary.worst),
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
                               "single executions.</p>\n<div "
                               "class=\"scroll grid\">\n",
                               RunsSvg(summary), "</div>\n")));
  for (const RanksSummary& size : summary.sizes) {
    absl::StrAppend(&body, SizeSection(size));
  }
  absl::StrAppend(&body, Provenance(summary));
  return PageHtml("Predicted and executed", body);
}

}  // namespace pipewright
