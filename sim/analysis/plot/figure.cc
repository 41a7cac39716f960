#include "sim/analysis/plot/figure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/report.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

constexpr double kPointsPerMm = 72 / 25.4;

// A path of seconds is not called so while times are units.
std::string NameOf(const std::string& path, absl::string_view units) {
  return TimesInUnits::now() && IsTimePath(path) ? PathInUnits(path, units)
                                                 : path;
}

std::string AxisTitle(const std::string& path, const AxisUnit& unit) {
  if (unit.name.empty()) return path;
  return absl::StrCat(NameOf(path, ""), " (", unit.name, ")");
}

// An axis from `low` to `high` or a little more, with at most `most_ticks`.
Axis AxisOf(double low, double high, const std::string& path,
            const AxisUnit& unit, double most_ticks) {
  low /= unit.size;
  high /= unit.size;
  if (high - low <= 1e-12 * std::max(std::abs(high), 1e-300)) {
    const double half = high == 0 ? 1 : 0.05 * std::abs(high);
    low -= half;
    high += half;
  }
  // Zero is on the axis where it is near.
  if (low > 0 && low < 0.3 * high) low = 0;
  const double wanted = (high - low) / std::max(2.0, most_ticks);
  const double step = TickStep(wanted);
  Axis axis = {.low = std::floor(low / step + 1e-9) * step,
               .high = std::ceil(high / step - 1e-9) * step,
               .title = AxisTitle(path, unit)};
  axis.ticks = TicksOf(axis.low, axis.high, wanted);
  return axis;
}

class FigureWriter {
 public:
  explicit FigureWriter(const Figure& figure)
      : figure_(figure),
        font_(figure.font_pt),
        width_(figure.width_mm * kPointsPerMm),
        height_(figure.height_mm * kPointsPerMm),
        svg_(font_) {
    for (const FigurePoint& point : figure.points) {
      if (series_.try_emplace(point.series, series_.size()).second) {
        names_.push_back(point.series);
      }
    }
  }

  std::string Write() {
    Measure();
    DrawAxes();
    if (figure_.kind == FigureKind::kLine) DrawLines();
    if (figure_.front) DrawFront();
    for (const FigurePoint& point : figure_.points) DrawPoint(point);
    return svg_.FinishWith(
        absl::StrCat("width=\"", Px(figure_.width_mm), "mm\" height=\"",
                     Px(figure_.height_mm), "mm\""),
        width_, height_,
        absl::StrCat(NameOf(figure_.y.path, ""), " against ",
                     NameOf(figure_.x.path, "")));
  }

 private:
  void Measure() {
    const auto extend = [](double value, double* low, double* high) {
      *low = std::min(*low, value);
      *high = std::max(*high, value);
    };
    double low[2] = {INFINITY, INFINITY};
    double high[2] = {-INFINITY, -INFINITY};
    for (const FigurePoint& point : figure_.points) {
      extend(point.x, &low[0], &high[0]);
      extend(point.y, &low[1], &high[1]);
      for (const auto& [axis, range] :
           {std::pair(0, &point.x_range), std::pair(1, &point.y_range)}) {
        if (!*range) continue;
        extend((*range)->first, &low[axis], &high[axis]);
        extend((*range)->second, &low[axis], &high[axis]);
      }
    }
    const auto unit = [&](int axis, const std::string& path) {
      return UnitOf(path, std::max(std::abs(low[axis]), std::abs(high[axis])));
    };
    x_unit_ = unit(0, figure_.x.path);
    y_unit_ = unit(1, figure_.y.path);
    y_ =
        AxisOf(low[1], high[1], figure_.y.path, y_unit_, height_ / (4 * font_));
    double widest = 0;
    for (const AxisTick& tick : y_.ticks) {
      widest = std::max(widest, TextWidth(tick.label, font_));
    }
    left_ = font_ * 2.4 + widest;
    right_ = width_ - font_ * 1.6;
    bottom_ = height_ - font_ * 3.6;
    x_ = AxisOf(low[0], high[0], figure_.x.path, x_unit_,
                (right_ - left_) / (6 * font_));
  }

  double X(double value) const {
    return left_ + (right_ - left_) * x_.Share(value / x_unit_.size);
  }
  double Y(double value) const {
    return bottom_ - (bottom_ - top_) * y_.Share(value / y_unit_.size);
  }

  // Title, legend and axes; the legend says where the points begin.
  void DrawAxes() {
    top_ = 0.8 * font_;
    if (!figure_.title.empty()) {
      svg_.Text(left_, 1.4 * font_, figure_.title,
                {.size = 1.2 * font_, .bold = true});
      top_ = 2.4 * font_;
    }
    std::vector<LegendItem> items;
    for (size_t series = 0; names_.size() > 1 && series < names_.size();
         ++series) {
      LegendItem& item = items.emplace_back();
      item.label = names_[series];
      item.width = 0.8 * font_;
      DrawMark(series, 0.4 * font_, 0.58 * font_, "", &item.swatch);
    }
    if (figure_.front) {
      LegendItem& item = items.emplace_back();
      item.label = "Pareto front";
      item.width = 1.5 * font_;
      item.swatch.Path(PathOf({"M", 0.0, 0.58 * font_, "h", 1.5 * font_}),
                       FrontPaint());
    }
    if (!items.empty()) {
      top_ = svg_.Legend(items, left_, top_ - 0.3 * font_, right_ - left_) +
             0.2 * font_;
    }
    std::string grid;
    for (const AxisTick& tick : x_.ticks) {
      grid += PathOf({"M", X(tick.value * x_unit_.size), top_, "V", bottom_});
    }
    for (const AxisTick& tick : y_.ticks) {
      grid += PathOf({"M", left_, Y(tick.value * y_unit_.size), "H", right_});
    }
    svg_.Path(grid, {.css = "rule", .stroke = "#D8D8D8", .width = 0.5});
    svg_.XAxis(x_, left_, right_ - left_, bottom_);
    svg_.YAxis(y_, left_, bottom_, bottom_ - top_);
    svg_.Text(font_ * 1.1, (top_ + bottom_) / 2, y_.title,
              {.anchor = "middle", .upwards = true});
  }

  static Paint FrontPaint() {
    return {.css = "front", .stroke = "#6E6E6E", .dashes = "3 2"};
  }

  static const char* ColourOfSeries(size_t series) {
    return kHues[series % kHues.size()];
  }

  // The mark of a series around (x, y): series differ in grey print too.
  void DrawMark(size_t series, double x, double y, const std::string& title,
                Svg* svg) const {
    const double size = 0.32 * font_;
    const Paint paint = {.fill = ColourOfSeries(series), .title = title};
    switch (series % 4) {
      case 0:
        svg->Circle(x, y, size, paint);
        break;
      case 1:
        svg->Rect(x - size, y - size, 2 * size, 2 * size, paint);
        break;
      case 2:
        svg->Path(PathOf({"M", x, y - 1.3 * size, "L", x + 1.2 * size, y + size,
                          "H", x - 1.2 * size, "Z"}),
                  paint);
        break;
      default:
        svg->Path(PathOf({"M", x, y - 1.4 * size, "L", x + 1.4 * size, y, "L",
                          x, y + 1.4 * size, "L", x - 1.4 * size, y, "Z"}),
                  paint);
    }
  }

  void DrawPoint(const FigurePoint& point) {
    const size_t series = series_.at(point.series);
    const double x = X(point.x);
    const double y = Y(point.y);
    std::string bars;
    if (point.y_range) {
      bars += PathOf(
          {"M", x, Y(point.y_range->first), "V", Y(point.y_range->second)});
    }
    if (point.x_range) {
      bars += PathOf(
          {"M", X(point.x_range->first), y, "H", X(point.x_range->second)});
    }
    if (!bars.empty()) {
      svg_.Path(
          bars,
          {.css = "error", .stroke = ColourOfSeries(series), .width = 0.8});
    }
    DrawMark(series, x, y,
             absl::StrFormat("%s: %s %.6g %s, %s %.6g %s", point.name,
                             NameOf(figure_.x.path, ""), point.x / x_unit_.size,
                             x_unit_.name, NameOf(figure_.y.path, ""),
                             point.y / y_unit_.size, y_unit_.name),
             &svg_);
  }

  void DrawLines() {
    for (size_t series = 0; series < names_.size(); ++series) {
      std::vector<std::pair<double, double>> places;
      for (const FigurePoint& point : figure_.points) {
        if (series_.at(point.series) != series) continue;
        places.emplace_back(point.x, point.y);
      }
      std::sort(places.begin(), places.end());
      std::string path;
      for (const auto& [x, y] : places) {
        path += PathOf({path.empty() ? "M" : "L", X(x), Y(y)});
      }
      svg_.Path(path, {.stroke = ColourOfSeries(series)});
    }
  }

  void DrawFront() {
    std::string path;
    for (const size_t index : ParetoFront(figure_)) {
      const double x = X(figure_.points[index].x);
      const double y = Y(figure_.points[index].y);
      // A step: between two points of the front nothing better is known.
      path += path.empty()               ? PathOf({"M", x, y})
              : figure_.x.more_is_better ? PathOf({"V", y, "H", x})
                                         : PathOf({"H", x, "V", y});
    }
    svg_.Path(path, FrontPaint());
  }

  const Figure& figure_;
  const double font_;
  const double width_;
  const double height_;
  Svg svg_;
  std::map<std::string, size_t> series_;
  std::vector<std::string> names_;
  double left_ = 0;
  double right_ = 0;
  double top_ = 0;
  double bottom_ = 0;
  AxisUnit x_unit_;
  AxisUnit y_unit_;
  Axis x_;
  Axis y_;
};

// As RFC 4180 says.
std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\n\r") == std::string::npos) return text;
  std::string out = "\"";
  for (const char each : text) {
    if (each == '"') out += '"';
    out += each;
  }
  return out + "\"";
}

std::string Exact(double value) { return absl::StrFormat("%.17g", value); }

}  // namespace

std::string FigureSvg(const Figure& figure) {
  const TimesInUnits units(figure.in_units);
  return FigureWriter(figure).Write();
}

bool MoreIsBetter(const std::string& path) {
  for (const absl::string_view word :
       {"tokens_per_s", "tflops", "mfu", "microbatches_per_s"}) {
    if (absl::StrContains(path, word)) return true;
  }
  return false;
}

std::vector<size_t> ParetoFront(const Figure& figure) {
  std::vector<size_t> order(figure.points.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const double x_sign = figure.x.more_is_better ? -1 : 1;
  const double y_sign = figure.y.more_is_better ? -1 : 1;
  std::stable_sort(order.begin(), order.end(), [&](size_t one, size_t other) {
    const FigurePoint& a = figure.points[one];
    const FigurePoint& b = figure.points[other];
    return a.x != b.x ? x_sign * a.x < x_sign * b.x
                      : y_sign * a.y < y_sign * b.y;
  });
  std::vector<size_t> front;
  double best = INFINITY;
  for (const size_t index : order) {
    const double y = y_sign * figure.points[index].y;
    if (y >= best) continue;
    best = y;
    front.push_back(index);
  }
  if (figure.x.more_is_better) std::reverse(front.begin(), front.end());
  return front;
}

AxisUnit UnitOf(const std::string& path, double largest) {
  if (IsTimePath(path)) {
    const TimeUnit unit = UnitFor(largest);
    return {std::string(unit.name), unit.seconds};
  }
  if (absl::StrContains(path, "bytes")) {
    const ByteUnit unit = ByteUnitFor(largest);
    return {std::string(unit.name), unit.bytes};
  }
  if (absl::StrContains(path, "bubble_") || absl::EndsWith(path, "mfu")) {
    return {"%", 0.01};
  }
  return {};
}

std::string FigureCsv(const Figure& figure) {
  const TimesInUnits units(figure.in_units);
  std::string out = "name,series,";
  for (const std::string& path : {figure.x.path, figure.y.path}) {
    const std::string name = Quoted(NameOf(path, "_units"));
    absl::StrAppend(&out, name, ",", name, " low,", name, " high,");
  }
  out += "on_front\n";
  const std::vector<size_t> front = ParetoFront(figure);
  const auto range = [](const std::optional<std::pair<double, double>>& each) {
    return each
               ? absl::StrCat(",", Exact(each->first), ",", Exact(each->second))
               : ",,";
  };
  for (size_t index = 0; index < figure.points.size(); ++index) {
    const FigurePoint& point = figure.points[index];
    const bool on_front =
        std::find(front.begin(), front.end(), index) != front.end();
    absl::StrAppend(&out, Quoted(point.name), ",", Quoted(point.series), ",",
                    Exact(point.x), range(point.x_range), ",", Exact(point.y),
                    range(point.y_range), ",", on_front ? 1 : 0, "\n");
  }
  return out;
}

}  // namespace pipewright
