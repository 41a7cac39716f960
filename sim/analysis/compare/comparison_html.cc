#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/compare/comparison.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"

namespace pipewright {
namespace {

constexpr size_t kMaxRows = 256;

std::string Metrics(const TraceComparison& comparison) {
  const std::string unit = absl::StrCat(" (", TimeUnitOf(comparison).name, ")");
  HtmlTable table;
  table.header = {"metric", "simulated", "measured", "error"};
  table.rows = MetricRows(comparison);
  for (std::vector<std::string>& row : table.rows) {
    if (!absl::StartsWith(row[0], "bubble")) row[0] += unit;
  }
  return SectionHtml("metrics", "Metrics", TableHtml(table, kMaxRows));
}

std::string FindingsSection(const TraceComparison& comparison) {
  if (comparison.findings.list.empty()) {
    return SectionHtml("findings", "What stands out",
                       "<p>No single cause stands out.</p>\n");
  }
  std::vector<std::string> texts;
  for (const Finding& finding : comparison.findings.list) {
    texts.push_back(finding.text);
  }
  return SectionHtml(
      "findings", "What stands out",
      absl::StrCat("<p class=\"quiet\">In brackets: what the step changes by "
                   "for this alone.</p>\n",
                   ListHtml(texts), "<p>", EscapeXml(TogetherText(comparison)),
                   "</p>\n"));
}

std::string Differences(const TraceComparison& comparison) {
  HtmlTable table;
  table.header = {"cause",
                  absl::StrCat("step (", TimeUnitOf(comparison).name, ")"),
                  "of the step", ""};
  table.rows = DifferenceRows(comparison);
  return SectionHtml(
      "differences", "Where the step time differs",
      absl::StrCat("<p class=\"quiet\">The simulated run is replayed with the "
                   "measured times of one class after the other, in this "
                   "order; the changes add up to the whole.</p>\n",
                   TableHtml(table, kMaxRows)));
}

std::string Ranks(const TraceComparison& comparison) {
  HtmlTable table;
  table.header = {"rank"};
  const TimeUnit time = TimeUnitOf(comparison);
  const std::string unit = absl::StrCat(" (", time.name, ")");
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
      row.push_back(InUnit(times.simulated, time));
      row.push_back(InUnit(times.measured, time));
      row.push_back(FormatChange(times.error()));
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

std::string Conditions(const TraceComparison& comparison) {
  if (comparison.conditions.empty()) return "";
  return SectionHtml("conditions", "What the traces cannot tell",
                     ListHtml(comparison.conditions));
}

}  // namespace

std::string ComparisonHtml(const TraceComparison& comparison,
                           const PairedRun& run) {
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
  const std::string title =
      absl::StrCat(comparison.schedule, ": simulated and measured");
  return PageHtml(
      title,
      absl::StrCat(
          HeaderHtml(title, absl::StrCat("simulated: ", comparison.simulated,
                                         " · measured: ", comparison.measured)),
          WarningsHtml(comparison.warnings, "Notes"), Metrics(comparison),
          FindingsSection(comparison), Differences(comparison),
          Conditions(comparison),
          SectionHtml("overlay", "Timelines",
                      absl::StrCat("<input type=\"checkbox\" id=\"fit\"> "
                                   "<label for=\"fit\">fit to the width of "
                                   "the page</label>\n",
                                   PictureHtml(OverlaySvg(run, options)))),
          Ranks(comparison)));
}

}  // namespace pipewright
