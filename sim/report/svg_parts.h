// Parts of SVG pictures that know nothing of schedules: coordinates, a legend
// that wraps, a time axis. Pixels, y downwards. Text has the class "ink" and
// lines the class "line", so that a page may recolour them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// A coordinate: at most two decimals, none where they are zero.
std::string Px(double value);

// ` x="" y="" width="" height=""`, to stand inside a tag.
std::string RectShape(double x, double y, double width, double height);

// Width of escaped text in DejaVu Sans, the widest of the usual sans-serif
// fonts; a little more than it takes (widths of its letters, in em, rounded
// up).
double TextWidth(absl::string_view text, double font_px);

struct LegendItem {
  std::string swatch;  // SVG, 14 pixels high, origin at its upper left corner
  double swatch_width = 0;
  std::string label;  // already escaped
};

// Items side by side from (left, top), wrapped at `width`; sets `bottom`.
std::string LegendSvg(const std::vector<LegendItem>& items, double left,
                      double top, double width, double* bottom);

// 1, 2 or 5 times a power of ten, at least `wanted` > 0.
double TickStep(double wanted);

// Line, ticks at 1, 2 or 5 times a power of ten about 110 pixels apart, their
// labels and the unit, for start_s < end_s; 42 pixels high.
std::string TimeAxisSvg(double start_s, double end_s, double left, double width,
                        double y);

}  // namespace pipewright
