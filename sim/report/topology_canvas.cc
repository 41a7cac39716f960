#include "sim/report/topology_canvas.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

constexpr double kBoxFont = 11;
// Okabe-Ito, without the yellow that paper swallows.
constexpr std::array<absl::string_view, 7> kLinkColours = {
    "#0072B2", "#D55E00", "#009E73", "#CC79A7",
    "#E69F00", "#56B4E9", "#1A1A1A"};
constexpr absl::string_view kNoLink = "#9A9A9A";

absl::string_view ColourOfKind(int kind) {
  return kind < 0
             ? kNoLink
             : kLinkColours[static_cast<size_t>(kind) % kLinkColours.size()];
}

}  // namespace

std::string LinkLabel(absl::string_view name, double bytes_per_s,
                      double latency_s) {
  return absl::StrCat(name, ": ", FormatBandwidth(bytes_per_s), ", ",
                      FormatSeconds(latency_s));
}

int TopologyCanvas::Kind(const std::string& label) {
  const auto found = std::find(kinds_.begin(), kinds_.end(), label);
  if (found != kinds_.end()) return static_cast<int>(found - kinds_.begin());
  kinds_.push_back(label);
  return static_cast<int>(kinds_.size()) - 1;
}

void TopologyCanvas::Cover(double x, double y) {
  left_ = std::min(left_, x);
  right_ = std::max(right_, x);
  top_ = std::min(top_, y);
  bottom_ = std::max(bottom_, y);
}

void TopologyCanvas::Box(CanvasPoint centre, double width, double height,
                         absl::string_view label, absl::string_view fill) {
  const double x = centre.x - width / 2;
  const double y = centre.y - height / 2;
  Cover(x - 1, y - 1);
  Cover(x + width + 1, y + height + 1);
  absl::StrAppend(&boxes_, "<rect class=\"line\"",
                  RectShape(x, y, width, height), " rx=\"3\" fill=\"", fill,
                  "\" stroke=\"#1A1A1A\"/>\n", "<text class=\"ink\" x=\"",
                  Px(centre.x), "\" y=\"", Px(centre.y + 4),
                  "\" text-anchor=\"middle\" fill=\"#1A1A1A\"", " font-size=\"",
                  Px(kBoxFont), "\">", EscapeXml(label), "</text>\n");
}

void TopologyCanvas::Path(const std::string& path, int kind, bool dashed) {
  absl::StrAppend(&lines_, "<path d=\"", path, "\" fill=\"none\" stroke=\"",
                  ColourOfKind(kind), "\" stroke-width=\"",
                  kind < 0 ? "1" : "1.8",
                  dashed ? "\" stroke-dasharray=\"4 3\"/>\n" : "\"/>\n");
  plain_ = plain_ || kind < 0;
}

void TopologyCanvas::Line(CanvasPoint from, CanvasPoint to, int kind) {
  Cover(from.x, from.y);
  Cover(to.x, to.y);
  Path(absl::StrCat("M", Px(from.x), " ", Px(from.y), "L", Px(to.x), " ",
                    Px(to.y)),
       kind, false);
}

void TopologyCanvas::Arc(CanvasPoint from, CanvasPoint to, double rise,
                         int kind) {
  const CanvasPoint middle = {(from.x + to.x) / 2, (from.y + to.y) / 2};
  Cover(middle.x, middle.y - rise);
  // A quadratic curve comes half as near as its control point.
  Path(absl::StrCat("M", Px(from.x), " ", Px(from.y), "Q", Px(middle.x), " ",
                    Px(middle.y - 2 * rise), " ", Px(to.x), " ", Px(to.y)),
       kind, false);
}

void TopologyCanvas::Dashes(CanvasPoint from, CanvasPoint to, int kind) {
  Cover(from.x, from.y);
  Cover(to.x, to.y);
  Path(absl::StrCat("M", Px(from.x), " ", Px(from.y), "L", Px(to.x), " ",
                    Px(to.y)),
       kind, true);
}

void TopologyCanvas::Note(CanvasPoint start, absl::string_view text) {
  Cover(start.x, start.y - kBoxFont);
  Cover(start.x + TextWidth(text, kBoxFont), start.y + 4);
  absl::StrAppend(&boxes_, "<text class=\"ink\" x=\"", Px(start.x), "\" y=\"",
                  Px(start.y), "\" fill=\"#1A1A1A\" font-size=\"", Px(kBoxFont),
                  "\">", EscapeXml(text), "</text>\n");
}

std::string TopologyCanvas::Place(double left, double top, double least_width,
                                  double* right, double* bottom) const {
  const double width = std::max(least_width, right_ - left_);
  std::vector<LegendItem> items;
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    items.push_back({absl::StrCat("<path d=\"M0 7h24\" stroke=\"",
                                  ColourOfKind(static_cast<int>(kind)),
                                  "\" stroke-width=\"3\"/>"),
                     24, EscapeXml(kinds_[kind])});
  }
  if (plain_) {
    items.push_back({absl::StrCat("<path d=\"M0 7h24\" stroke=\"", kNoLink,
                                  "\" stroke-width=\"1\"/>"),
                     24, "no link of its own"});
  }
  std::string out =
      absl::StrCat("<g transform=\"translate(", Px(left - left_), " ",
                   Px(top - top_), ")\">\n", lines_, boxes_, "</g>\n");
  *right = left + width;
  *bottom = top + bottom_ - top_ + 14;
  if (!items.empty()) {
    absl::StrAppend(&out, LegendSvg(items, left, *bottom, width, bottom));
  }
  return out;
}

}  // namespace pipewright
