#include "sim/report/svg_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/report/format.h"

namespace pipewright {
namespace {

// Distances in legends and axes, in em.
constexpr double kLegendPitch = 20.0 / 12;
constexpr double kLegendGap = 1.5;  // between a label and the next swatch
constexpr double kSwatchGap = 0.5;
constexpr double kLegendBaseline = 11.0 / 12;
constexpr double kTick = 5.0 / 12;
constexpr double kTickLabel = 1.5;
constexpr double kTickGap = 7.0 / 12;   // from a vertical axis to a label
constexpr double kBaseline = 4.0 / 12;  // below the middle of a letter
constexpr double kAxisTitle = 35.0 / 12;

// ` name="value"`, to stand inside a tag; "" without a value.
std::string Attribute(absl::string_view name, absl::string_view value) {
  return value.empty() ? "" : absl::StrCat(" ", name, "=\"", value, "\"");
}

std::string PaintText(const Paint& paint) {
  const bool stroked = !paint.stroke.empty();
  return absl::StrCat(
      paint.more,
      Attribute("fill", paint.fill.empty() && stroked ? "none" : paint.fill),
      Attribute("stroke", paint.stroke),
      Attribute("stroke-width",
                stroked && paint.width != 1 ? Px(paint.width) : ""),
      Attribute("stroke-dasharray", paint.dashes));
}

// The end of the tag of a shape, with its tooltip.
std::string EndOf(absl::string_view tag, const std::string& title) {
  return title.empty() ? "/>\n"
                       : absl::StrCat("><title>", EscapeXml(title),
                                      "</title></", tag, ">\n");
}

}  // namespace

std::string Px(double value) {
  std::string text = absl::StrFormat("%.2f", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string PathOf(std::initializer_list<PathStep> steps) {
  std::string out;
  bool after_number = false;
  for (const PathStep& step : steps) {
    const bool number = step.letters.empty();
    absl::StrAppend(&out, number && after_number ? " " : "",
                    number ? Px(step.number) : step.letters);
    after_number = number;
  }
  return out;
}

double TextWidth(absl::string_view text, double font_px) {
  double em = 0;
  for (const char letter : text) {
    if ((letter & 0xc0) == 0x80) {
      continue;  // the rest of a letter
    } else if (absl::StrContains("MWmw%@", letter)) {
      em += 0.99;
    } else if (absl::StrContains(" .,:;|!'ijlI()", letter)) {
      em += 0.40;
    } else if (absl::StrContains("frt-/", letter)) {
      em += 0.42;
    } else if (absl::StrContains("&<>\"", letter)) {
      em += 0.84;
    } else if (absl::ascii_isupper(letter)) {
      em += 0.79;
    } else {
      em += 0.64;
    }
  }
  return em * font_px;
}

double TickStep(double wanted) {
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= wanted) step = factor * power;
  }
  return step;
}

std::vector<AxisTick> TicksOf(double low, double high, double wanted) {
  const double step = TickStep(wanted);
  std::vector<AxisTick> ticks;
  const double first = std::ceil(low / step - 1e-9) + 0.0;
  for (double tick = first; tick * step <= high + 1e-9 * step; ++tick) {
    const double value = tick == 0 ? 0 : tick * step;  // never "-0"
    ticks.push_back({value, absl::StrFormat("%.6g", value)});
  }
  return ticks;
}

void Svg::Rect(double x, double y, double width, double height,
               const Paint& paint) {
  absl::StrAppend(&out_, "<rect", Attribute("class", paint.css), " x=\"", Px(x),
                  "\" y=\"", Px(y), "\" width=\"", Px(width), "\" height=\"",
                  Px(height), "\"", PaintText(paint),
                  EndOf("rect", paint.title));
}

void Svg::Circle(double x, double y, double radius, const Paint& paint) {
  absl::StrAppend(&out_, "<circle", Attribute("class", paint.css), " cx=\"",
                  Px(x), "\" cy=\"", Px(y), "\" r=\"", Px(radius), "\"",
                  PaintText(paint), EndOf("circle", paint.title));
}

void Svg::Path(absl::string_view path, const Paint& paint) {
  absl::StrAppend(&out_, "<path", Attribute("class", paint.css),
                  PaintText(paint), " d=\"", path, "\"",
                  EndOf("path", paint.title));
}

void Svg::Text(double x, double y, absl::string_view text,
               const Lettering& lettering) {
  const bool ink = lettering.fill.empty();
  absl::StrAppend(
      &out_, "<text", ink ? Attribute("class", lettering.css) : "", " x=\"",
      Px(x), "\" y=\"", Px(y), "\"", Attribute("text-anchor", lettering.anchor),
      lettering.size > 0 ? Attribute("font-size", Px(lettering.size)) : "",
      lettering.bold ? " font-weight=\"bold\"" : "",
      Attribute("fill", ink ? kInk : lettering.fill),
      lettering.upwards
          ? absl::StrCat(" transform=\"rotate(-90 ", Px(x), " ", Px(y), ")\"")
          : "",
      ">", EscapeXml(text), "</text>\n");
}

void Svg::Open(absl::string_view attributes, absl::string_view title) {
  absl::StrAppend(&out_, "<g", attributes.empty() ? "" : " ", attributes, ">",
                  title.empty()
                      ? ""
                      : absl::StrCat("<title>", EscapeXml(title), "</title>"),
                  "\n");
}

double Svg::Legend(const std::vector<LegendItem>& items, double left,
                   double top, double width) {
  Open("class=\"legend\"");
  double x = left;
  double y = top;
  for (const LegendItem& item : items) {
    const double text_x =
        item.width > 0 ? item.width + kSwatchGap * font_px_ : 0;
    const double item_width =
        text_x + TextWidth(item.label, font_px_) + kLegendGap * font_px_;
    if (x > left && x + item_width > left + width) {
      x = left;
      y += kLegendPitch * font_px_;
    }
    Open(absl::StrCat("transform=\"translate(", Px(x), " ", Px(y), ")\""));
    Add(item.swatch);
    Text(text_x, kLegendBaseline * font_px_, item.label);
    Close();
    x += item_width;
  }
  Close();
  return y + kLegendPitch * font_px_;
}

void Svg::XAxis(const Axis& axis, double left, double width, double y) {
  std::string line = PathOf({"M", left, y, "h", width});
  for (const AxisTick& tick : axis.ticks) {
    const double x = left + width * axis.Share(tick.value);
    line += PathOf({"M", x, y, "v", kTick * font_px_});
    if (tick.label.empty()) continue;
    Text(x, y + kTickLabel * font_px_, tick.label, {.anchor = "middle"});
  }
  Path(line, {.css = "line", .stroke = kInk});
  Text(left + width / 2, y + kAxisTitle * font_px_, axis.title,
       {.anchor = "middle"});
}

void Svg::YAxis(const Axis& axis, double x, double bottom, double height) {
  std::string line = PathOf({"M", x, bottom, "v", -height});
  for (const AxisTick& tick : axis.ticks) {
    const double y = bottom - height * axis.Share(tick.value);
    line += PathOf({"M", x, y, "h", -kTick * font_px_});
    Text(x - kTickGap * font_px_, y + kBaseline * font_px_, tick.label,
         {.anchor = "end", .css = "ink tick"});
  }
  Path(line, {.css = "line", .stroke = kInk});
}

void Svg::TimeAxis(double start_s, double end_s, double left, double width,
                   double y) {
  const TimeUnit unit = UnitFor(end_s);
  const double first = start_s / unit.seconds;
  const double last = end_s / unit.seconds;
  const double wanted = (last - first) / std::max(2.0, width / 110);
  XAxis({.low = first,
         .high = last,
         .ticks = TicksOf(first, last, wanted),
         .title = absl::StrCat("time (", unit.name, ")")},
        left, width, y);
}

std::string Svg::Finish(double width, double height,
                        absl::string_view label) const {
  return FinishWith(
      absl::StrCat("width=\"", Px(width), "\" height=\"", Px(height), "\""),
      width, height, label);
}

std::string Svg::FinishWith(absl::string_view attributes, double width,
                            double height, absl::string_view label) const {
  return absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", Px(width),
      " ", Px(height), "\" ", attributes,
      " font-family=\"DejaVu Sans, Arial, sans-serif\" font-size=\"",
      Px(font_px_), "\" role=\"img\" aria-label=\"", EscapeXml(label),
      "\">\n<rect class=\"paper\" width=\"100%\" height=\"100%\" "
      "fill=\"#FFFFFF\"/>\n",
      out_, "</svg>\n");
}

LegendItem LegendItem::Box(std::string label, const Paint& paint) {
  LegendItem item = {.label = std::move(label), .swatch = Svg(), .width = 14};
  item.swatch.Rect(0, 0, 14, 14, paint);
  return item;
}

LegendItem LegendItem::Line(std::string label, const Paint& paint) {
  LegendItem item = {.label = std::move(label), .swatch = Svg(), .width = 24};
  item.swatch.Path("M0 7h24", paint);
  return item;
}

}  // namespace pipewright
