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
#include "sim/report/format.h"
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

// The rows of one run, from `top`: computing above what communicates.
std::string TimelineRows(
    const MeasuredJob& job, int replica, double scale, double top,
    const std::string& title,
    const std::function<std::pair<double, double>(size_t)>& times) {
  std::string out =
      absl::StrCat("<text class=\"ink\" x=\"", Px(kTimelineLeft), "\" y=\"",
                   Px(top - 5), "\" fill=\"#1A1A1A\" font-weight=\"bold\">",
                   EscapeXml(title), "</text>\n");
  for (int stage = 0; stage < job.pp; ++stage) {
    const double y = top + stage * kTimelineRow;
    absl::StrAppend(
        &out, "<text class=\"ink\" x=\"", Px(kTimelineLeft - 8), "\" y=\"",
        Px(y + 14), "\" text-anchor=\"end\" fill=\"#1A1A1A\">",
        EscapeXml(job.place), " ", stage, "</text>\n<rect class=\"idle\"",
        RectShape(kTimelineLeft, y, kTimelineWidth, kTimelineRow - 4),
        " fill=\"#EFEFEF\"/>\n");
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
      const double y = top + each.stage * kTimelineRow;
      absl::StrAppend(
          &out, "<rect",
          RectShape(kTimelineLeft + start * scale, y + (communication ? 12 : 0),
                    width, communication ? 6 : 12),
          " fill=\"", Hex(ColourOf(StyleOfKind(kind), 0, 1)), "\"><title>",
          EscapeXml(absl::StrCat(kind.name, " ", each.number, ": ",
                                 FormatSeconds(end - start))),
          "</title></rect>\n");
    }
  }
  return out;
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
  std::string body = TimelineRows(
      job, replica, scale, first,
      absl::StrCat("step ", job.steps[0], " as recorded, replica ", replica),
      [&](size_t op) {
        const double start = job.start_s[op * steps];
        return std::pair(start, start + job.duration_s[op * steps]);
      });
  body += TimelineRows(job, replica, scale, second, "ideal", [&](size_t op) {
    return std::pair(diagnosis.timeline.start_s[op],
                     diagnosis.timeline.end_s[op]);
  });
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
    legend.push_back({absl::StrCat("<rect width=\"14\" height=\"14\" fill=\"",
                                   Hex(ColourOf(style, 0, 1)), "\"/>"),
                      14,
                      style == Style::kCollective
                          ? "communication, with its waiting"
                          : std::string(EscapeXml(StyleLabel(style)))});
  }
  double bottom = 0;
  body += LegendSvg(legend, kTimelineLeft, kTimelineMargin, kTimelineWidth,
                    &bottom);
  body += TimeAxisSvg(0, end, kTimelineLeft, kTimelineWidth, second + block);
  const double width = kTimelineLeft + kTimelineWidth + 20;
  const double height = second + block + 50;
  return absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"", Px(width),
      "\" height=\"", Px(height), "\" viewBox=\"0 0 ", Px(width), " ",
      Px(height),
      "\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" "
      "role=\"img\" aria-label=\"recorded and ideal timeline\">\n<rect "
      "class=\"paper\" width=\"100%\" height=\"100%\" fill=\"#FFFFFF\"/>\n",
      body, "</svg>\n");
}

}  // namespace pipewright
