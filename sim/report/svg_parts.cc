#include "sim/report/svg_parts.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/report/format.h"

namespace pipewright {
namespace {

constexpr double kLegendPitch = 20;
constexpr double kLegendGap = 18;  // between a label and the next swatch
constexpr double kLegendFont = 12;

std::string Text(double x, double y, absl::string_view anchor,
                 absl::string_view text) {
  return absl::StrCat("<text class=\"ink\" x=\"", Px(x), "\" y=\"", Px(y),
                      "\" text-anchor=\"", anchor, "\" fill=\"#1A1A1A\">", text,
                      "</text>\n");
}

}  // namespace

std::string Px(double value) {
  std::string text = absl::StrFormat("%.2f", value);
  while (text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string RectShape(double x, double y, double width, double height) {
  return absl::StrCat(" x=\"", Px(x), "\" y=\"", Px(y), "\" width=\"",
                      Px(width), "\" height=\"", Px(height), "\"");
}

double TextWidth(absl::string_view text, double font_px) {
  double em = 0;
  for (size_t index = 0; index < text.size(); ++index) {
    const char letter = text[index];
    if (letter == '&') {  // an entity is one letter
      const size_t end = text.find(';', index);
      if (end != absl::string_view::npos) index = end;
      em += 0.84;
    } else if ((letter & 0xc0) == 0x80) {
      continue;  // the rest of a letter
    } else if (absl::StrContains("MWmw%@", letter)) {
      em += 0.99;
    } else if (absl::StrContains(" .,:;|!'ijlI()", letter)) {
      em += 0.40;
    } else if (absl::StrContains("frt-/", letter)) {
      em += 0.42;
    } else if (absl::ascii_isupper(letter)) {
      em += 0.79;
    } else {
      em += 0.64;
    }
  }
  return em * font_px;
}

std::string LegendSvg(const std::vector<LegendItem>& items, double left,
                      double top, double width, double* bottom) {
  std::string out = "<g class=\"legend\">\n";
  double x = left;
  double y = top;
  for (const LegendItem& item : items) {
    const double text_x = item.swatch_width > 0 ? item.swatch_width + 6 : 0;
    const double item_width =
        text_x + TextWidth(item.label, kLegendFont) + kLegendGap;
    if (x > left && x + item_width > left + width) {
      x = left;
      y += kLegendPitch;
    }
    absl::StrAppend(&out, "<g transform=\"translate(", Px(x), " ", Px(y),
                    ")\">", item.swatch, Text(text_x, 11, "start", item.label),
                    "</g>\n");
    x += item_width;
  }
  *bottom = y + kLegendPitch;
  return out + "</g>\n";
}

double TickStep(double wanted) {
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.0, 1.0}) {
    if (factor * power >= wanted) step = factor * power;
  }
  return step;
}

std::string TimeAxisSvg(double start_s, double end_s, double left, double width,
                        double y) {
  const TimeUnit unit = UnitFor(end_s);
  const double first = start_s / unit.seconds;
  const double last = end_s / unit.seconds;
  const double wanted = (last - first) / std::max(2.0, width / 110);
  const double step = TickStep(wanted);
  std::string line = absl::StrCat("M", Px(left), " ", Px(y), "h", Px(width));
  std::string labels;
  const double first_tick = std::ceil(first / step - 1e-9) + 0.0;
  for (double tick = first_tick; tick * step <= last + 1e-9 * step; ++tick) {
    const double value = tick == 0 ? 0 : tick * step;  // never "-0"
    const double x = left + width * (value - first) / (last - first);
    absl::StrAppend(&line, "M", Px(x), " ", Px(y), "v5");
    absl::StrAppend(&labels,
                    Text(x, y + 18, "middle", absl::StrFormat("%.6g", value)));
  }
  return absl::StrCat("<path class=\"line\" d=\"", line,
                      "\" fill=\"none\" stroke=\"#1A1A1A\"/>\n", labels,
                      Text(left + width / 2, y + 35, "middle",
                           absl::StrCat("time (", unit.name, ")")));
}

}  // namespace pipewright
