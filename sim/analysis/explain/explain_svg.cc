// The parts of the step as stacked bars, one a rank, and the sensitivities as
// a tornado. Colours are hues of the Okabe-Ito palette; bubbles are hatched or
// light so that they also differ from compute in grey print.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/explain/explain.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
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

constexpr absl::string_view kPartColours[kNumStepParts] = {
    "#0072B2", "#E69F00", "#009E73", "#F0E442", "#56B4E9", "#CC79A7",
    "#D9D9D9", "#BDBDBD", "#8C8C8C", "#D55E00", "#EEAE7C", "#8C6BB1",
    "#404040", "#5A5A5A", "#6E6E6E", "#2A2A2A", "#7A5230", "#A0784F"};

std::string Label(double x, double y, absl::string_view anchor,
                  absl::string_view text, absl::string_view more = "") {
  return absl::StrCat("<text class=\"ink\" x=\"", Px(x), "\" y=\"", Px(y),
                      "\" text-anchor=\"", anchor, "\" fill=\"#1A1A1A\"", more,
                      ">", EscapeXml(text), "</text>\n");
}

std::string PartLegend(const StepExplanation& step, double top,
                       double* bottom) {
  std::vector<LegendItem> items;
  for (int index = 0; index < kNumStepParts; ++index) {
    const bool used = std::any_of(step.ranks.begin(), step.ranks.end(),
                                  [index](const RankStep& rank) {
                                    return rank.parts.seconds[index] > 0;
                                  });
    if (!used) continue;
    items.push_back({absl::StrCat("<rect", RectShape(0, 0, 14, 14), " fill=\"",
                                  kPartColours[index], "\"/>"),
                     14, std::string(PartName(static_cast<StepPart>(index)))});
  }
  return LegendSvg(items, kBarLeft, top, kBarWidth, bottom);
}

std::string RankBar(const RankStep& rank, double step_s, double top) {
  std::string out =
      Label(kBarLeft - 8, top + 15, "end", absl::StrCat("rank ", rank.rank));
  double x = kBarLeft;
  for (int index = 0; index < kNumStepParts; ++index) {
    const double seconds = rank.parts.seconds[index];
    if (seconds <= 0) continue;
    const double width = kBarWidth * seconds / step_s;
    absl::StrAppend(
        &out, "<rect class=\"box\"", RectShape(x, top, width, kBarHeight),
        " fill=\"", kPartColours[index], "\"><title>rank ", rank.rank, ", ",
        PartName(static_cast<StepPart>(index)), ": ", FormatSeconds(seconds),
        ", ", FormatPercent(seconds / step_s), "</title></rect>\n");
    x += width;
  }
  return out;
}

std::string Tornado(const Explanation& explanation, double* top) {
  const double step_s = explanation.step.step_s;
  double largest = 0;
  size_t widest = 0;
  for (const Sensitivity& row : explanation.sensitivities) {
    largest = std::max({largest, std::abs(row.shorter_s / step_s - 1),
                        std::abs(row.longer_s / step_s - 1)});
    widest = std::max(widest, row.name.size());
  }
  if (explanation.sensitivities.empty() || largest <= 0) return "";
  std::string out = Label(kBarLeft, *top + 14, "start",
                          "The step with one kind of time 10 % shorter or "
                          "longer",
                          " font-size=\"14\" font-weight=\"bold\"");
  *top += 30;
  const double middle = kBarLeft + kBarWidth / 2;
  // Room for the numbers beside the bars.
  const double scale = (kBarWidth / 2 - 80) / largest;
  const double first = *top;
  for (const Sensitivity& row : explanation.sensitivities) {
    out += Label(kBarLeft - 8, *top + 15, "end", row.name);
    const double changes[] = {row.shorter_s / step_s - 1,
                              row.longer_s / step_s - 1};
    const absl::string_view colours[] = {"#0072B2", "#E69F00"};
    for (int side = 0; side < 2; ++side) {
      const double width = std::abs(changes[side]) * scale;
      const double x = changes[side] < 0 ? middle - width : middle;
      absl::StrAppend(&out, "<rect class=\"box\"",
                      RectShape(x, *top, width, kBarHeight), " fill=\"",
                      colours[side], "\"/>\n");
      // Numbers of two bars on one side would stand on each other.
      const bool left = side == 0;
      const double edge =
          left ? std::min(x, middle) : std::max(x + width, middle);
      out += Label(edge + (left ? -6 : 6), *top + 15, left ? "end" : "start",
                   absl::StrFormat("%+.2f %%", 100 * changes[side]));
    }
    *top += kTornadoPitch;
  }
  absl::StrAppend(&out, "<path class=\"line\" d=\"M", Px(middle), " ",
                  Px(first - 4), "V", Px(*top), "\" stroke=\"#1A1A1A\"/>\n");
  double bottom = 0;
  out += LegendSvg({{"<rect width=\"14\" height=\"14\" fill=\"#0072B2\"/>", 14,
                     "10 % shorter"},
                    {"<rect width=\"14\" height=\"14\" fill=\"#E69F00\"/>", 14,
                     "10 % longer"}},
                   kBarLeft, *top + 8, kBarWidth, &bottom);
  *top = bottom + 6;
  return out;
}

}  // namespace

std::string ExplanationSvg(const Explanation& explanation) {
  const StepExplanation& step = explanation.step;
  const Report& report = explanation.run.report;
  const std::string title = absl::StrCat(
      report.schedule, ", pp ", report.pp, ", ", report.microbatches,
      " microbatches: where a step of ", FormatSeconds(step.step_s), " goes");
  std::string body = Label(kBarLeft, kBarMargin + 12, "start", title,
                           " font-size=\"14\" font-weight=\"bold\"");
  double top = 0;
  body += PartLegend(step, kBarMargin + 24, &top);
  top += 8;
  const size_t every = (step.ranks.size() + kMostBars - 1) / kMostBars;
  for (size_t index = 0; index < step.ranks.size(); index += every) {
    body += RankBar(step.ranks[index], step.step_s, top);
    top += kBarPitch;
  }
  if (step.step_s > 0) {
    body += TimeAxisSvg(0, step.step_s, kBarLeft, kBarWidth, top);
  }
  top += 60;
  body += Tornado(explanation, &top);
  const double width = kBarLeft + kBarWidth + 40;
  return absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", Px(width),
      "\" height=\"", Px(top), "\" viewBox=\"0 0 ", Px(width), " ", Px(top),
      "\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" "
      "role=\"img\" aria-label=\"",
      EscapeXml(title),
      "\">\n<rect class=\"paper\" width=\"100%\" "
      "height=\"100%\" fill=\"#FFFFFF\"/>\n",
      body, "</svg>\n");
}

}  // namespace pipewright
