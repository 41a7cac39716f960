#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/analysis/compare/overlay_svg.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"

namespace pipewright {
namespace {

constexpr size_t kMaxRows = 256;

// Shares of the first columns' unit.
class PageCells {
 public:
  explicit PageCells(const TraceComparison& comparison)
      : unit_(UnitFor(
            std::max(comparison.step_s.simulated, comparison.step_s.measured) /
            10)) {}

  absl::string_view unit() const { return unit_.name; }
  std::string Time(double seconds) const {
    return absl::StrFormat("%.3f", seconds / unit_.seconds);
  }
  std::string Change(double seconds) const {
    const double shown = std::abs(seconds) < 1e-12 ? 0.0 : seconds;
    return absl::StrFormat("%+.3f", shown / unit_.seconds);
  }

 private:
  TimeUnit unit_;
};

std::string Percent(double share) {
  return absl::StrFormat("%+.2f %%", share * 100);
}

std::string Items(const std::vector<std::string>& lines) {
  std::string items;
  for (const std::string& line : lines) {
    absl::StrAppend(&items, "<li>", EscapeXml(line), "</li>\n");
  }
  return absl::StrCat("<ul>\n", items, "</ul>\n");
}

std::string Metrics(const TraceComparison& comparison, const PageCells& cells) {
  HtmlTable table;
  table.header = {"metric", "simulated", "measured", "error"};
  const auto times = [&](absl::string_view name, const TwoValues& values) {
    table.rows.push_back({absl::StrCat(name, " (", cells.unit(), ")"),
                          cells.Time(values.simulated),
                          cells.Time(values.measured),
                          Percent(values.error())});
  };
  const auto points = [&](absl::string_view name, const TwoValues& values) {
    table.rows.push_back(
        {std::string(name), FormatPercent(values.simulated),
         FormatPercent(values.measured),
         absl::StrFormat("%+.2f points", -values.difference() * 100)});
  };
  times("step time", comparison.step_s);
  times("span, global", comparison.span_global_s);
  times("span, per rank", comparison.span_per_rank_s);
  times("busy", comparison.busy_s);
  points("bubble fraction, global", comparison.bubble_global);
  points("bubble fraction, per rank", comparison.bubble_per_rank);
  return SectionHtml("metrics", "Metrics", TableHtml(table, kMaxRows));
}

std::string FindingsSection(const TraceComparison& comparison) {
  if (comparison.findings.list.empty()) {
    return SectionHtml("findings", "What stands out",
                       "<p>No single cause stands out.</p>\n");
  }
  std::string items;
  for (const Finding& finding : comparison.findings.list) {
    absl::StrAppend(&items, "<li>", EscapeXml(finding.text), "</li>\n");
  }
  return SectionHtml(
      "findings", "What stands out",
      absl::StrCat("<p class=\"quiet\">In brackets: what the step changes by "
                   "for this alone.</p>\n<ul>\n",
                   items, "</ul>\n<p>", EscapeXml(TogetherText(comparison)),
                   "</p>\n"));
}

std::string Differences(const TraceComparison& comparison,
                        const PageCells& cells) {
  HtmlTable table;
  table.header = {"cause", absl::StrCat("step (", cells.unit(), ")"),
                  "of the step", ""};
  const double step_s = comparison.step_s.simulated;
  const auto row = [&](const std::string& name, double seconds, bool given) {
    const std::string change = cells.Change(seconds);
    const bool nothing = change == "+0.000" || change == "-0.000";
    const double share =
        std::abs(seconds) < 1e-12 || step_s <= 0 ? 0.0 : seconds / step_s;
    table.rows.push_back(
        {name, given && nothing ? "–" : change,
         step_s <= 0 || (given && nothing) ? "" : Percent(share),
         given ? "given, not measured" : ""});
  };
  for (const Difference& difference : comparison.differences) {
    row(CauseLabel(difference), difference.seconds, difference.given);
  }
  row("together", comparison.step_s.difference(), false);
  return SectionHtml(
      "differences", "Where the step time differs",
      absl::StrCat("<p class=\"quiet\">The simulated run is replayed with the "
                   "measured times of one class after the other, in this "
                   "order; the changes add up to the whole.</p>\n",
                   TableHtml(table, kMaxRows)));
}

std::string Ranks(const TraceComparison& comparison, const PageCells& cells) {
  HtmlTable table;
  table.header = {"rank"};
  const std::string unit = absl::StrCat(" (", cells.unit(), ")");
  for (const absl::string_view name : {"span", "busy"}) {
    table.header.push_back(absl::StrCat(name, " simulated", unit));
    table.header.push_back(absl::StrCat("measured", unit));
    table.header.push_back("error");
  }
  table.header.push_back("peak activations, simulated");
  table.header.push_back("measured");
  const bool apart = MemoryApart(comparison);
  table.header.push_back(apart ? "memory of the simulation"
                               : "peak memory, simulated");
  table.header.push_back(apart ? "memory of the measurement" : "measured");
  for (size_t rank = 0; rank < comparison.ranks.size(); ++rank) {
    const RankComparison& values = comparison.ranks[rank];
    std::vector<std::string> row = {absl::StrCat(rank)};
    for (const TwoValues& times : {values.span_s, values.busy_s}) {
      row.push_back(cells.Time(times.simulated));
      row.push_back(cells.Time(times.measured));
      row.push_back(Percent(times.error()));
    }
    const std::optional<TwoValues>& activations = values.peak_activations;
    for (double TwoValues::*const side :
         {&TwoValues::simulated, &TwoValues::measured}) {
      row.push_back(activations ? absl::StrFormat("%.4g", (*activations).*side)
                                : "");
    }
    for (const std::optional<double>& bytes : values.memory_bytes) {
      row.push_back(bytes ? FormatBytes(*bytes) : "");
    }
    table.rows.push_back(std::move(row));
  }
  return SectionHtml("ranks", "Ranks", TableHtml(table, kMaxRows));
}

std::string Notes(const TraceComparison& comparison) {
  if (comparison.warnings.empty()) return "";
  return absl::StrCat(
      "<section class=\"alert\" id=\"warnings\">\n<h2>Notes</h2>\n",
      Items(comparison.warnings), "</section>\n");
}

std::string Conditions(const TraceComparison& comparison) {
  if (comparison.conditions.empty()) return "";
  return SectionHtml("conditions", "What the traces cannot tell",
                     Items(comparison.conditions));
}

}  // namespace

std::string ComparisonHtml(const TraceComparison& comparison,
                           const PairedRun& run) {
  const PageCells cells(comparison);
  size_t most = 0;
  std::vector<size_t> operations(run.pp);
  for (const PairedOp& paired : run.ops) {
    if (paired.op.iteration == comparison.iteration && paired.op.replica == 0 &&
        paired.op.stream == Stream::kCompute) {
      most = std::max(most, ++operations[paired.op.rank]);
    }
  }
  OverlayOptions options;
  options.iteration = comparison.iteration;
  options.width_px =
      std::clamp(30.0 * static_cast<double>(most), 1100.0, 6000.0);
  options.title =
      absl::StrCat(comparison.schedule, ", iteration ", comparison.iteration);
  const std::string heading =
      absl::StrCat("simulated: ", comparison.simulated,
                   " · measured: ", comparison.measured);
  return PageHtml(
      absl::StrCat(comparison.schedule, ": simulated and measured"),
      absl::StrCat(
          "<header>\n<h1>", EscapeXml(comparison.schedule),
          ": simulated and measured</h1>\n<p class=\"quiet\">",
          EscapeXml(heading), "</p>\n</header>\n", Notes(comparison),
          Metrics(comparison, cells), FindingsSection(comparison),
          Differences(comparison, cells), Conditions(comparison),
          SectionHtml("overlay", "Timelines",
                      absl::StrCat("<input type=\"checkbox\" id=\"fit\"> "
                                   "<label for=\"fit\">fit to the width of "
                                   "the page</label>\n<div class=\"grid "
                                   "scroll\" tabindex=\"0\">\n",
                                   OverlaySvg(run, options), "</div>\n")),
          Ranks(comparison, cells)));
}

}  // namespace pipewright
