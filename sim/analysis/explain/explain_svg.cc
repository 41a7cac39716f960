// The parts of the step as stacked bars, one a rank, and the sensitivities as
// a tornado. Colours are hues of the Okabe-Ito palette; bubbles are hatched or
// light so that they also differ from compute in grey print.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/analysis/explain/explain.h"
#include "sim/base/quantity.h"
#include "sim/program/program.h"
#include "sim/report/format.h"
#include "sim/report/svg.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

constexpr double kBarLeft = 76;
constexpr double kBarWidth = 900;
constexpr double kBarPitch = 26;
constexpr double kBarHeight = 20;
constexpr double kBarMargin = 14;
constexpr double kTornadoPitch = 24;
// More bars than this would be a wall; then every n-th rank is drawn.
constexpr size_t kMostBars = 64;

constexpr const char* kPartColours[kNumStepParts] = {
    "#0072B2", "#E69F00", "#009E73", "#F0E442", "#56B4E9", "#CC79A7",
    "#D9D9D9", "#BDBDBD", "#8C8C8C", "#D55E00", "#EEAE7C", "#8C6BB1",
    "#404040", "#5A5A5A", "#6E6E6E", "#2A2A2A", "#7A5230", "#A0784F"};

double PartLegend(const StepExplanation& step, double top, Svg* svg) {
  std::vector<LegendItem> items;
  for (int index = 0; index < kNumStepParts; ++index) {
    const bool used = std::any_of(step.ranks.begin(), step.ranks.end(),
                                  [index](const RankStep& rank) {
                                    return rank.parts.seconds[index] > 0;
                                  });
    if (!used) continue;
    items.push_back(
        LegendItem::Box(std::string(PartName(static_cast<StepPart>(index))),
                        {.fill = kPartColours[index]}));
  }
  return svg->Legend(items, kBarLeft, top, kBarWidth);
}

void RankBar(const RankStep& rank, double step_s, double top, Svg* svg) {
  svg->Text(kBarLeft - 8, top + 15, absl::StrCat("rank ", rank.rank),
            {.anchor = "end"});
  double x = kBarLeft;
  for (int index = 0; index < kNumStepParts; ++index) {
    const double seconds = rank.parts.seconds[index];
    if (seconds <= 0) continue;
    const double width = kBarWidth * seconds / step_s;
    svg->Rect(x, top, width, kBarHeight,
              {.css = "box",
               .fill = kPartColours[index],
               .title = absl::StrCat("rank ", rank.rank, ", ",
                                     PartName(static_cast<StepPart>(index)),
                                     ": ", FormatSeconds(seconds), ", ",
                                     FormatPercent(seconds / step_s))});
    x += width;
  }
}

// Returns the bottom.
double Tornado(const Explanation& explanation, double top, Svg* svg) {
  const double step_s = explanation.step.step_s;
  double largest = 0;
  for (const Sensitivity& row : explanation.sensitivities) {
    largest = std::max({largest, std::abs(row.shorter_s / step_s - 1),
                        std::abs(row.longer_s / step_s - 1)});
  }
  if (explanation.sensitivities.empty() || largest <= 0) return top;
  svg->Heading(kBarLeft, top + 14,
               "The step with one kind of time 10 % shorter or longer");
  top += 30;
  const double middle = kBarLeft + kBarWidth / 2;
  // Room for the numbers beside the bars.
  const double scale = (kBarWidth / 2 - 80) / largest;
  const double first = top;
  const char* const colours[] = {kHues[0], kHues[4]};
  for (const Sensitivity& row : explanation.sensitivities) {
    svg->Text(kBarLeft - 8, top + 15, row.name, {.anchor = "end"});
    const double changes[] = {row.shorter_s / step_s - 1,
                              row.longer_s / step_s - 1};
    for (int side = 0; side < 2; ++side) {
      const double width = std::abs(changes[side]) * scale;
      const double x = changes[side] < 0 ? middle - width : middle;
      svg->Rect(x, top, width, kBarHeight,
                {.css = "box", .fill = colours[side]});
      // Numbers of two bars on one side would stand on each other.
      const bool left = side == 0;
      const double edge =
          left ? std::min(x, middle) : std::max(x + width, middle);
      svg->Text(edge + (left ? -6 : 6), top + 15, FormatChange(changes[side]),
                {.anchor = left ? "end" : ""});
    }
    top += kTornadoPitch;
  }
  svg->Path(PathOf({"M", middle, first - 4, "V", top}),
            {.css = "line", .stroke = kInk});
  return 6 + svg->Legend({LegendItem::Box("10 % shorter", {.fill = colours[0]}),
                          LegendItem::Box("10 % longer", {.fill = colours[1]})},
                         kBarLeft, top + 8, kBarWidth);
}

// The start above what was made of it, on one scale. Returns the bottom.
double Timelines(const Explanation& explanation, double top, Svg* svg) {
  const SearchedOrder& searched = *explanation.searched;
  struct Row {
    const SimulatedRun& run;
    const std::vector<TraceOp>& ops;
    std::string title;
  };
  const Row rows[] = {
      {searched.start, searched.start_ops,
       absl::StrCat("From ", searched.found.start, ": step ",
                    FormatSeconds(searched.start_step_s), ", bubbles ",
                    FormatPercent(searched.start_bubble))},
      {explanation.run, searched.ops,
       absl::StrCat("Searched: step ", FormatSeconds(explanation.step.step_s),
                    ", bubbles ", FormatPercent(searched.bubble))}};
  GridOptions grid = {.width_px = kBarWidth};
  for (const Row& row : rows) {
    for (const TraceOp& op : row.ops) {
      grid.end_s = std::max(grid.end_s, op.end_s);
    }
  }
  for (const Row& row : rows) {
    grid.title = row.title;
    if (!row.ops.empty()) grid.replica = row.ops[0].replica;
    double height = 0;
    const Svg part = ScheduleGrid(*row.run.program, row.ops, grid, &height);
    svg->Open(absl::StrCat("transform=\"translate(", Px(kBarLeft - kGridLeft),
                           " ", Px(top), ")\""));
    svg->Add(part);
    svg->Close();
    top += height + 10;
  }
  return top;
}

}  // namespace

std::string ExplanationSvg(const Explanation& explanation) {
  const StepExplanation& step = explanation.step;
  const Report& report = explanation.run.report;
  const TimesInUnits units(report.in_units);
  const std::string title = absl::StrCat(
      report.schedule, ", pp ", report.pp, ", ", report.microbatches,
      " microbatches: where a step of ", FormatSeconds(step.step_s), " goes");
  Svg svg;
  svg.Heading(kBarLeft, kBarMargin + 12, title);
  double top = PartLegend(step, kBarMargin + 24, &svg) + 8;
  const size_t every = (step.ranks.size() + kMostBars - 1) / kMostBars;
  for (size_t index = 0; index < step.ranks.size(); index += every) {
    RankBar(step.ranks[index], step.step_s, top, &svg);
    top += kBarPitch;
  }
  if (step.step_s > 0) {
    svg.TimeAxis(0, step.step_s, kBarLeft, kBarWidth, top);
  }
  top = Tornado(explanation, top + 60, &svg);
  if (explanation.searched) top = Timelines(explanation, top, &svg);
  return svg.Finish(kBarLeft + kBarWidth + 40, top, title);
}

}  // namespace pipewright
