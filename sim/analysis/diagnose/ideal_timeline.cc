#include <algorithm>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/report/palette.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

constexpr double kTimelineLeft = 90;
constexpr double kTimelineWidth = 1000;
constexpr double kTimelineRow = 22;
constexpr double kTimelineMargin = 10;
constexpr double kLeastBox = 0.4;  // pixels that can still be seen
constexpr double kMicrosecondsOfSecond = 1e6;

Style StyleOfKind(const JobKind& kind) {
  if (kind.communication) return Style::kCollective;
  if (kind.name == "F" || absl::StartsWith(kind.name, "forward")) {
    return Style::kForward;
  }
  if (kind.name == "B") return Style::kBackwardInput;
  if (kind.name == "W") return Style::kBackwardWeight;
  if (kind.name == "R") return Style::kRecompute;
  if (kind.name == "BW" || absl::StartsWith(kind.name, "backward")) {
    return Style::kBackwardFull;
  }
  return absl::StartsWith(kind.name, "optimizer") ? Style::kOptimizer
                                                  : Style::kOther;
}

// Draws the rows of one run, from `top`: computing above what communicates.
void TimelineRows(const MeasuredJob& job, int replica, double scale, double top,
                  absl::string_view title,
                  const std::function<std::pair<double, double>(size_t)>& times,
                  Svg* svg) {
  svg->Text(kTimelineLeft, top - 5, title, {.bold = true});
  for (int stage = 0; stage < job.pp; ++stage) {
    const double y = top + stage * kTimelineRow;
    svg->Text(kTimelineLeft - 8, y + 14, absl::StrCat(job.place, " ", stage),
              {.anchor = "end"});
    svg->Rect(kTimelineLeft, y, kTimelineWidth, kTimelineRow - 4,
              {.css = "idle", .fill = "#EFEFEF"});
  }
  // What waits for others covers much of the time: it lies below.
  for (const bool communication : {true, false}) {
    for (size_t op = 0; op < job.num_ops(); ++op) {
      const JobOp& each = job.ops[op];
      const JobKind& kind = job.kinds[each.kind];
      if (each.replica != replica || kind.communication != communication) {
        continue;
      }
      const auto [start, end] = times(op);
      const double width = (end - start) * scale;
      if (width < kLeastBox) continue;
      svg->Rect(kTimelineLeft + start * scale,
                top + each.stage * kTimelineRow + (communication ? 12 : 0),
                width, communication ? 6 : 12,
                {.fill = Hex(ColourOf(StyleOfKind(kind), 0, 1)),
                 .title = absl::StrCat(kind.name, " ", each.number, ": ",
                                       FormatSeconds(end - start))});
    }
  }
}

}  // namespace

std::string IdealTimelineJson(const MeasuredJob& job,
                              const Diagnosis& diagnosis) {
  std::string out;
  const auto begin = [&out] { out += out.empty() ? "\n" : ",\n"; };
  const auto name = [&](const char* what, int process, int thread,
                        const std::string& text) {
    begin();
    absl::StrAppendFormat(
        &out, R"({"ph":"M","name":"%s","pid":%d,"tid":%d,"args":{"name":%s}})",
        what, process, thread, QuotedJson(text));
  };
  for (int replica = 0; replica < job.dp; ++replica) {
    name("process_name", replica, 0, absl::StrCat("replica ", replica));
    for (int stage = 0; stage < job.pp; ++stage) {
      name("thread_name", replica, 2 * stage,
           absl::StrCat(job.place, " ", stage));
      name("thread_name", replica, 2 * stage + 1,
           absl::StrCat(job.place, " ", stage, " communication"));
    }
  }
  for (size_t op = 0; op < job.num_ops(); ++op) {
    const JobOp& each = job.ops[op];
    const JobKind& kind = job.kinds[each.kind];
    const double start = diagnosis.timeline.start_s[op];
    begin();
    absl::StrAppendFormat(
        &out,
        R"({"ph":"X","name":%s,"cat":%s,"pid":%d,"tid":%d,"ts":%.3f,)"
        R"("dur":%.3f})",
        QuotedJson(absl::StrCat(kind.name, " ", each.number)),
        QuotedJson(kind.name), each.replica,
        2 * each.stage + (kind.communication ? 1 : 0),
        start * kMicrosecondsOfSecond,
        std::max(0.0, diagnosis.timeline.end_s[op] - start) *
            kMicrosecondsOfSecond);
  }
  return absl::StrCat("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"source\":",
                      QuotedJson(job.source), ",\"times\":\"ideal\"},\n",
                      "\"traceEvents\":[", out, "\n]}\n");
}

std::string TimelineSvg(const MeasuredJob& job, const Diagnosis& diagnosis,
                        int replica) {
  const size_t steps = job.num_steps();
  const double recorded =
      diagnosis.steps.empty() ? 0 : diagnosis.steps[0].recorded_s;
  const double end = std::max(recorded, diagnosis.ideal_s);
  if (end <= 0) return "";
  const double scale = kTimelineWidth / end;
  const double block = job.pp * kTimelineRow;
  const double first = kTimelineMargin + 50;
  const double second = first + block + 30;
  std::vector<LegendItem> legend;
  for (const Style style :
       {Style::kForward, Style::kBackwardInput, Style::kBackwardWeight,
        Style::kBackwardFull, Style::kRecompute, Style::kOptimizer,
        Style::kCollective}) {
    const bool used =
        std::any_of(job.ops.begin(), job.ops.end(), [&](const JobOp& op) {
          return StyleOfKind(job.kinds[op.kind]) == style;
        });
    if (!used) continue;
    legend.push_back(LegendItem::Box(style == Style::kCollective
                                         ? "communication, with its waiting"
                                         : std::string(StyleLabel(style)),
                                     {.fill = Hex(ColourOf(style, 0, 1))}));
  }
  Svg svg;
  svg.Legend(legend, kTimelineLeft, kTimelineMargin, kTimelineWidth);
  TimelineRows(
      job, replica, scale, first,
      absl::StrCat("step ", job.steps[0], " as recorded, replica ", replica),
      [&](size_t op) {
        const double start = job.start_s[op * steps];
        return std::pair(start, start + job.duration_s[op * steps]);
      },
      &svg);
  TimelineRows(
      job, replica, scale, second, "ideal",
      [&](size_t op) {
        return std::pair(diagnosis.timeline.start_s[op],
                         diagnosis.timeline.end_s[op]);
      },
      &svg);
  svg.TimeAxis(0, end, kTimelineLeft, kTimelineWidth, second + block);
  return svg.Finish(kTimelineLeft + kTimelineWidth + 20, second + block + 50,
                    "recorded and ideal timeline");
}

}  // namespace pipewright
