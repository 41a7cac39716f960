// One SVG picture: whoever draws adds shapes, texts, axes and a legend in turn
// and takes the whole at the end. Tags, escaping, coordinates, common colours
// and ticks are here alone; of schedules it knows nothing.
//
// Units are those of the view box, pixels unless a picture has its size in
// millimetres; y grows downwards. Texts have the class "ink" and black lines
// the class "line", so that a page may recolour them.
#pragma once

#include <array>
#include <initializer_list>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// Colour of texts and axes.
inline constexpr char kInk[] = "#1A1A1A";
// Background of a row in which nothing runs.
inline constexpr char kIdle[] = "#E4E4E4";
// Hues of the Okabe-Ito palette (palette.h) for what is told apart by number,
// without the yellow that paper swallows.
inline constexpr std::array<const char*, 7> kHues = {
    "#0072B2", "#D55E00", "#009E73", "#CC79A7",
    "#E69F00", "#56B4E9", "#1A1A1A"};

// A coordinate: at most two decimals, none where they are zero.
std::string Px(double value);

// Letters of a path as they are, numbers as coordinates: {"M", x, y, "h", 5}.
struct PathStep {
  PathStep(const char* text) : letters(text) {}  // NOLINT
  PathStep(double value) : number(value) {}      // NOLINT
  absl::string_view letters;
  double number = 0;
};
std::string PathOf(std::initializer_list<PathStep> steps);

// Width of a text in DejaVu Sans, the widest of the usual sans-serif fonts; a
// little more than it takes (widths of its letters, in em, rounded up).
double TextWidth(absl::string_view text, double font_px);

// How a shape is painted; what is empty is left out.
struct Paint {
  std::string css;  // class
  std::string fill;
  std::string stroke;
  double width = 1;    // of the stroke
  std::string dashes;  // "4 3"
  std::string more;    // further attributes, as they stand in the tag
  std::string title;   // tooltip
};

// How a text is set.
struct Lettering {
  absl::string_view anchor;  // "middle", "end"; "": as around it, or "start"
  double size = 0;           // 0: the size of the picture
  bool bold = false;
  bool upwards = false;  // turned by 90 degrees
  std::string fill;      // "": kInk, as "ink"
  std::string css = "ink";
};

struct AxisTick {
  double value = 0;
  std::string label;
};

struct Axis {
  double low = 0;  // the values at its ends
  double high = 1;
  std::vector<AxisTick> ticks;
  std::string title;

  double Share(double value) const { return (value - low) / (high - low); }
};

// 1, 2 or 5 times a power of ten, at least `wanted` > 0.
double TickStep(double wanted);
// The multiples of TickStep(wanted) from `low` to `high`.
std::vector<AxisTick> TicksOf(double low, double high, double wanted);

struct LegendItem;

class Svg {
 public:
  Svg() = default;
  explicit Svg(double font_px) : font_px_(font_px) {}

  void Rect(double x, double y, double width, double height,
            const Paint& paint);
  void Circle(double x, double y, double radius, const Paint& paint);
  // `path`: see PathOf.
  void Path(absl::string_view path, const Paint& paint);
  void Text(double x, double y, absl::string_view text,
            const Lettering& lettering = {});
  // A bold line above a picture.
  void Heading(double x, double y, absl::string_view text) {
    Text(x, y, text, {.size = 15, .bold = true});
  }

  // A group with these attributes around all until Close().
  void Open(absl::string_view attributes, absl::string_view title = "");
  void Close() { out_ += "</g>\n"; }
  void Add(const Svg& other) { out_ += other.out_; }
  // Elements as they are.
  void Add(absl::string_view elements) {
    out_.append(elements.data(), elements.size());
  }

  // Items side by side from (left, top), wrapped at `width`. Returns the
  // bottom.
  double Legend(const std::vector<LegendItem>& items, double left, double top,
                double width);

  // A line with ticks below it, their labels and the title: 3.5 lines of text
  // high.
  void XAxis(const Axis& axis, double left, double width, double y);
  // The same upwards from `bottom`, with the labels at the left. Its title is
  // the caller's.
  void YAxis(const Axis& axis, double x, double bottom, double height);
  // An axis of time about 110 pixels from tick to tick, for start_s < end_s.
  void TimeAxis(double start_s, double end_s, double left, double width,
                double y);

  bool empty() const { return out_.empty(); }
  const std::string& body() const { return out_; }

  // The picture on white paper; `label` is for those who do not see it.
  std::string Finish(double width, double height,
                     absl::string_view label) const;
  // The same with other attributes than width and height in the tag.
  std::string FinishWith(absl::string_view attributes, double width,
                         double height, absl::string_view label) const;

 private:
  double font_px_ = 12;
  std::string out_;
};

struct LegendItem {
  std::string label;
  Svg swatch;  // 14 pixels high for a font of 12, origin at its upper left
  double width = 0;  // of the swatch

  // A square, or the piece of a line.
  static LegendItem Box(std::string label, const Paint& paint);
  static LegendItem Line(std::string label, const Paint& paint);
};

}  // namespace pipewright
