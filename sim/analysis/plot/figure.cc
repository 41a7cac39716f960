#include "sim/analysis/plot/figure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/report/format.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

// Hues of the Okabe-Ito palette, and a mark each, so that series differ in
// grey print too.
constexpr const char* kSeriesColours[] = {"#0072B2", "#D55E00", "#009E73",
                                          "#CC79A7", "#E69F00", "#56B4E9",
                                          "#000000"};
constexpr size_t kSeriesColoursCount = std::size(kSeriesColours);
constexpr double kPointsPerMm = 72 / 25.4;

struct Scale {
  double low = 0;
  double high = 1;
  double step = 1;
  AxisUnit unit;
};

Scale ScaleOf(double low, double high, const std::string& path,
              double most_ticks) {
  Scale scale;
  scale.unit = UnitOf(path, std::max(std::abs(low), std::abs(high)));
  low /= scale.unit.size;
  high /= scale.unit.size;
  if (high - low <= 1e-12 * std::max(std::abs(high), 1e-300)) {
    const double half = high == 0 ? 1 : 0.05 * std::abs(high);
    low -= half;
    high += half;
  }
  // Zero is on the axis where it is near.
  if (low > 0 && low < 0.3 * high) low = 0;
  scale.step = TickStep((high - low) / std::max(2.0, most_ticks));
  scale.low = std::floor(low / scale.step + 1e-9) * scale.step;
  scale.high = std::ceil(high / scale.step - 1e-9) * scale.step;
  return scale;
}

std::string AxisTitle(const std::string& path, const AxisUnit& unit) {
  return unit.name.empty() ? path : absl::StrCat(path, " (", unit.name, ")");
}

class FigureWriter {
 public:
  explicit FigureWriter(const Figure& figure)
      : figure_(figure),
        font_(figure.font_pt),
        width_(figure.width_mm * kPointsPerMm),
        height_(figure.height_mm * kPointsPerMm) {
    for (const FigurePoint& point : figure.points) {
      if (series_.try_emplace(point.series, series_.size()).second) {
        names_.push_back(point.series);
      }
    }
  }

  std::string Write() {
    Measure();
    std::string body = Axes();
    if (figure_.kind == FigureKind::kLine) body += Lines();
    if (figure_.front) body += Front();
    for (const FigurePoint& point : figure_.points) body += Point(point);
    body += Legend();
    return absl::StrCat(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"",
        Px(figure_.width_mm), "mm\" height=\"", Px(figure_.height_mm),
        "mm\" viewBox=\"0 0 ", Px(width_), " ", Px(height_),
        "\" font-family=\"DejaVu Sans, Arial, sans-serif\" font-size=\"",
        Px(font_), "\" role=\"img\" aria-label=\"",
        EscapeXml(absl::StrCat(figure_.y.path, " against ", figure_.x.path)),
        "\">\n<rect class=\"paper\" width=\"100%\" height=\"100%\" "
        "fill=\"#FFFFFF\"/>\n",
        body, "</svg>\n");
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
    legend_rows_ = names_.size() > 1 || figure_.front ? LegendRows() : 0;
    top_ = font_ * (figure_.title.empty() ? 0.8 : 2.4) +
           legend_rows_ * 1.5 * font_;
    y_ = ScaleOf(low[1], high[1], figure_.y.path, height_ / (4 * font_));
    double widest = 0;
    for (const std::string& label : Labels(y_)) {
      widest = std::max(widest, static_cast<double>(label.size()));
    }
    left_ = font_ * (2.4 + 0.64 * widest);
    right_ = width_ - font_ * 1.6;
    bottom_ = height_ - font_ * 3.6;
    x_ = ScaleOf(low[0], high[0], figure_.x.path,
                 (right_ - left_) / (6 * font_));
  }

  static std::vector<std::string> Labels(const Scale& scale) {
    std::vector<std::string> out;
    const double count = std::round((scale.high - scale.low) / scale.step);
    for (int tick = 0; tick <= static_cast<int>(count); ++tick) {
      const double value = scale.low + tick * scale.step;
      out.push_back(absl::StrFormat(
          "%.6g", std::abs(value) < 1e-9 * scale.step ? 0.0 : value));
    }
    return out;
  }

  double X(double value) const {
    return left_ + (right_ - left_) * (value / x_.unit.size - x_.low) /
                       (x_.high - x_.low);
  }
  double Y(double value) const {
    return bottom_ - (bottom_ - top_) * (value / y_.unit.size - y_.low) /
                         (y_.high - y_.low);
  }

  static std::string Text(double x, double y, absl::string_view anchor,
                          absl::string_view text, absl::string_view more = "") {
    return absl::StrCat("<text class=\"ink\" x=\"", Px(x), "\" y=\"", Px(y),
                        "\" text-anchor=\"", anchor, "\" fill=\"#1A1A1A\"",
                        more, ">", EscapeXml(text), "</text>\n");
  }

  std::string Axes() const {
    std::string grid;
    std::string labels;
    const std::vector<std::string> x_labels = Labels(x_);
    for (size_t tick = 0; tick < x_labels.size(); ++tick) {
      const double x = left_ + (right_ - left_) * tick / (x_labels.size() - 1);
      absl::StrAppend(&grid, "M", Px(x), " ", Px(top_), "V", Px(bottom_));
      labels += Text(x, bottom_ + 1.3 * font_, "middle", x_labels[tick]);
    }
    const std::vector<std::string> y_labels = Labels(y_);
    for (size_t tick = 0; tick < y_labels.size(); ++tick) {
      const double y =
          bottom_ - (bottom_ - top_) * tick / (y_labels.size() - 1);
      absl::StrAppend(&grid, "M", Px(left_), " ", Px(y), "H", Px(right_));
      labels +=
          Text(left_ - 0.5 * font_, y + 0.36 * font_, "end", y_labels[tick]);
    }
    const double middle = (top_ + bottom_) / 2;
    return absl::StrCat(
        "<path class=\"rule\" d=\"", grid,
        "\" fill=\"none\" stroke=\"#D8D8D8\" stroke-width=\"0.5\"/>\n",
        "<path class=\"line\" d=\"M", Px(left_), " ", Px(top_), "V",
        Px(bottom_), "H", Px(right_),
        "\" fill=\"none\" stroke=\"#1A1A1A\" stroke-width=\"0.8\"/>\n", labels,
        Text((left_ + right_) / 2, bottom_ + 2.9 * font_, "middle",
             AxisTitle(figure_.x.path, x_.unit)),
        Text(font_ * 1.1, middle, "middle", AxisTitle(figure_.y.path, y_.unit),
             absl::StrCat(" transform=\"rotate(-90 ", Px(font_ * 1.1), " ",
                          Px(middle), ")\"")),
        figure_.title.empty()
            ? ""
            : Text(left_, 1.4 * font_, "start", figure_.title,
                   absl::StrCat(" font-size=\"", Px(1.2 * font_),
                                "\" font-weight=\"bold\"")));
  }

  // The mark of a series around (x, y).
  std::string Mark(size_t series, double x, double y) const {
    const double size = 0.32 * font_;
    const char* colour = kSeriesColours[series % kSeriesColoursCount];
    std::string shape;
    switch (series % 4) {
      case 0:
        shape = absl::StrCat("<circle cx=\"", Px(x), "\" cy=\"", Px(y),
                             "\" r=\"", Px(size), "\"");
        break;
      case 1:
        shape = absl::StrCat("<rect",
                             RectShape(x - size, y - size, 2 * size, 2 * size));
        break;
      case 2:
        shape = absl::StrCat("<path d=\"M", Px(x), " ", Px(y - 1.3 * size), "L",
                             Px(x + 1.2 * size), " ", Px(y + size), "H",
                             Px(x - 1.2 * size), "Z\"");
        break;
      default:
        shape = absl::StrCat("<path d=\"M", Px(x), " ", Px(y - 1.4 * size), "L",
                             Px(x + 1.4 * size), " ", Px(y), "L", Px(x), " ",
                             Px(y + 1.4 * size), "L", Px(x - 1.4 * size), " ",
                             Px(y), "Z\"");
    }
    return absl::StrCat(shape, " fill=\"", colour, "\"");
  }

  std::string Point(const FigurePoint& point) const {
    const size_t series = series_.at(point.series);
    std::string bars;
    if (point.y_range) {
      absl::StrAppend(&bars, "M", Px(X(point.x)), " ",
                      Px(Y(point.y_range->first)), "V",
                      Px(Y(point.y_range->second)));
    }
    if (point.x_range) {
      absl::StrAppend(&bars, "M", Px(X(point.x_range->first)), " ",
                      Px(Y(point.y)), "H", Px(X(point.x_range->second)));
    }
    std::string out;
    if (!bars.empty()) {
      out = absl::StrCat("<path class=\"error\" d=\"", bars,
                         "\" fill=\"none\" stroke=\"",
                         kSeriesColours[series % kSeriesColoursCount],
                         "\" stroke-width=\"0.8\"/>\n");
    }
    return absl::StrCat(
        out, Mark(series, X(point.x), Y(point.y)), "><title>",
        EscapeXml(absl::StrFormat("%s: %s %.6g %s, %s %.6g %s", point.name,
                                  figure_.x.path, point.x / x_.unit.size,
                                  x_.unit.name, figure_.y.path,
                                  point.y / y_.unit.size, y_.unit.name)),
        "</title>",
        series % 4 == 0   ? "</circle>\n"
        : series % 4 == 1 ? "</rect>\n"
                          : "</path>\n");
  }

  std::string Lines() const {
    std::string out;
    for (size_t series = 0; series < names_.size(); ++series) {
      std::vector<std::pair<double, double>> places;
      for (const FigurePoint& point : figure_.points) {
        if (series_.at(point.series) != series) continue;
        places.emplace_back(point.x, point.y);
      }
      std::sort(places.begin(), places.end());
      std::string path;
      for (const auto& [x, y] : places) {
        absl::StrAppend(&path, path.empty() ? "M" : "L", Px(X(x)), " ",
                        Px(Y(y)));
      }
      absl::StrAppend(&out, "<path d=\"", path, "\" fill=\"none\" stroke=\"",
                      kSeriesColours[series % kSeriesColoursCount],
                      "\" stroke-width=\"1\"/>\n");
    }
    return out;
  }

  std::string Front() const {
    std::string path;
    for (const size_t index : ParetoFront(figure_)) {
      const FigurePoint& point = figure_.points[index];
      // A step: between two points of the front nothing better is known.
      if (path.empty()) {
        path = absl::StrCat("M", Px(X(point.x)), " ", Px(Y(point.y)));
      } else if (figure_.x.more_is_better) {
        absl::StrAppend(&path, "V", Px(Y(point.y)), "H", Px(X(point.x)));
      } else {
        absl::StrAppend(&path, "H", Px(X(point.x)), "V", Px(Y(point.y)));
      }
    }
    return absl::StrCat("<path class=\"front\" d=\"", path,
                        "\" fill=\"none\" stroke=\"#6E6E6E\" "
                        "stroke-width=\"1\" stroke-dasharray=\"3 2\"/>\n");
  }

  double LabelWidth(const std::string& name) const {
    return font_ * (2.2 + 0.62 * static_cast<double>(name.size()));
  }
  // Names of the legend; the last is that of the front.
  std::vector<std::string> LegendNames() const {
    std::vector<std::string> names;
    if (names_.size() > 1) names = names_;
    if (figure_.front) names.push_back("Pareto front");
    return names;
  }
  int LegendRows() const {
    double x = 0;
    int rows = 1;
    for (const std::string& name : LegendNames()) {
      if (x > 0 && x + LabelWidth(name) > width_ - 4 * font_) {
        x = 0;
        ++rows;
      }
      x += LabelWidth(name);
    }
    return rows;
  }
  std::string Legend() const {
    if (legend_rows_ == 0) return "";
    std::string out = "<g class=\"legend\">\n";
    double x = 0;
    double y = font_ * (figure_.title.empty() ? 1.1 : 2.7);
    const std::vector<std::string> names = LegendNames();
    for (size_t index = 0; index < names.size(); ++index) {
      const bool front = figure_.front && index + 1 == names.size();
      if (x > 0 && x + LabelWidth(names[index]) > width_ - 4 * font_) {
        x = 0;
        y += 1.5 * font_;
      }
      const double at = 2.4 * font_ + x;
      out += front ? absl::StrCat("<path d=\"M", Px(at - 0.6 * font_), " ",
                                  Px(y), "h", Px(1.2 * font_),
                                  "\" stroke=\"#6E6E6E\" "
                                  "stroke-dasharray=\"3 2\"/>\n")
                   : absl::StrCat(Mark(index, at, y), "/>\n");
      out += Text(at + 0.9 * font_, y + 0.36 * font_, "start", names[index]);
      x += LabelWidth(names[index]);
    }
    return out + "</g>\n";
  }

  const Figure& figure_;
  const double font_;
  const double width_;
  const double height_;
  std::map<std::string, size_t> series_;
  std::vector<std::string> names_;
  int legend_rows_ = 0;
  double left_ = 0;
  double right_ = 0;
  double top_ = 0;
  double bottom_ = 0;
  Scale x_;
  Scale y_;
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
  // The last part that has a unit in its name: peak_memory_bytes.max.
  const bool seconds =
      (absl::EndsWith(path, "_s") || absl::StrContains(path, "_s.")) &&
      !absl::StrContains(path, "per_s");
  if (seconds) {
    const TimeUnit unit = UnitFor(largest);
    return {std::string(unit.name), unit.seconds};
  }
  if (absl::StrContains(path, "bytes")) {
    for (const auto& [name, size] :
         {std::pair("GiB", 1024.0 * 1024 * 1024), std::pair("MiB", 1048576.0),
          std::pair("KiB", 1024.0)}) {
      if (largest >= size) return {name, size};
    }
    return {"B", 1};
  }
  if (absl::StrContains(path, "bubble_") || absl::EndsWith(path, "mfu")) {
    return {"%", 0.01};
  }
  return {};
}

std::string FigureCsv(const Figure& figure) {
  std::string out =
      absl::StrCat("name,series,", Quoted(figure.x.path), ",",
                   Quoted(figure.x.path), " low,", Quoted(figure.x.path),
                   " high,", Quoted(figure.y.path), ",", Quoted(figure.y.path),
                   " low,", Quoted(figure.y.path), " high,on_front\n");
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
