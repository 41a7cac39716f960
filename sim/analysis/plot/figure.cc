#include "sim/analysis/plot/figure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
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

// "Peak memory, GiB".
std::string AxisTitle(const FigureAxis& axis, const AxisUnit& unit) {
  const std::string words =
      axis.label.empty() ? AxisWords(axis.path) : axis.label;
  return unit.name.empty() || !axis.label.empty()
             ? words
             : absl::StrCat(words, ", ", unit.name);
}

struct WordsOfPath {
  const char* path;
  const char* words;
};
constexpr WordsOfPath kWords[] = {
    {"iteration_s", "Iteration time"},
    {"iteration_units", "Iteration time, units of a pass"},
    {"confirmed_s", "Iteration time with jitter"},
    {"tokens_per_s", "Throughput, tokens/s"},
    {"microbatches_per_s", "Throughput, microbatches/s"},
    {"tflops_per_device", "TFLOP/s per device"},
    {"mfu", "MFU"},
    {"bubble_fraction.per_rank", "Bubble fraction per rank"},
    {"bubble_fraction.global", "Bubble fraction"},
    {"bubble_overhead.per_rank", "Bubble overhead per rank"},
    {"bubble_overhead.global", "Bubble overhead"},
    {"peak_memory_bytes.max", "Peak memory"},
    {"peak_activations.max", "Peak activations, microbatches"},
    {"schedule.name", "Schedule"},
    {"strategy.tp", "Tensor-parallel size"},
    {"strategy.cp", "Context-parallel size"},
    {"strategy.ep", "Expert-parallel size"},
    {"strategy.pp", "Pipeline stages"},
    {"strategy.vpp", "Chunks per rank"},
    {"strategy.dp", "Data-parallel size"},
    {"system.nodes", "Nodes"},
};

// Points, lines and error bars of a picture, as places that a label keeps
// clear of.
struct Obstacle {
  double x = 0;
  double y = 0;
  size_t series = 0;
};

struct LabelBox {
  double left = 0;
  double middle = 0;  // of its height
  double width = 0;
  double height = 0;

  // To a place; 0 inside.
  double Distance(double x, double y) const {
    return std::hypot(std::max({left - x, x - left - width, 0.0}),
                      std::max(std::abs(y - middle) - height / 2, 0.0));
  }
  bool Meets(const LabelBox& other) const {
    return left < other.left + other.width && other.left < left + width &&
           std::abs(middle - other.middle) < (height + other.height) / 2;
  }
};

// A label beside a mark says more than a legend; more series than this have
// labels only if each is one point.
constexpr size_t kMostLabels = 8;
constexpr size_t kMostLabelledPoints = 400;

// An axis from `low` to `high` or a little more, with at most `most_ticks`.
// Marks of half a size `mark`, a share of the axis, are clear of its ends.
Axis AxisOf(double low, double high, const FigureAxis& of, const AxisUnit& unit,
            double most_ticks, double mark) {
  low /= unit.size;
  high /= unit.size;
  if (high - low <= 1e-12 * std::max(std::abs(high), 1e-300)) {
    const double half = high == 0 ? 1 : 0.05 * std::abs(high);
    low -= half;
    high += half;
  }
  const double least = low;
  // Zero is on the axis where it is near.
  if (low > 0 && low < 0.3 * high) low = 0;
  const double wanted = (high - low) / std::max(2.0, most_ticks);
  const double step = TickStep(wanted);
  Axis axis = {.low = std::floor(low / step + 1e-9) * step,
               .high = std::ceil(high / step - 1e-9) * step,
               .title = AxisTitle(of, unit)};
  axis.ticks = TicksOf(axis.low, axis.high, wanted);
  for (AxisTick& tick : axis.ticks) tick.label = WithSeparators(tick.value);
  const double margin = mark * (axis.high - axis.low);
  axis.low = std::min(axis.low, least - margin);
  axis.high = std::max(axis.high, high + margin);
  return axis;
}

// Names in a legend, about as many as marks and colours tell apart.
constexpr size_t kMostInLegend = 35;

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
    DrawAxes(PlaceLabels());
    if (figure_.kind == FigureKind::kLine) DrawLines();
    if (figure_.front) DrawFront();
    for (const FigurePoint& point : figure_.points) DrawPoint(point);
    for (const auto& [name, box] : labels_) {
      svg_.Text(box.left, box.middle + font_ / 3, name);
    }
    return svg_.FinishWith(
        absl::StrCat("width=\"", Px(figure_.width_mm), "mm\" height=\"",
                     Px(figure_.height_mm), "mm\""),
        width_, height_, absl::StrCat(y_.title, " against ", x_.title));
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
    y_ = AxisOf(low[1], high[1], figure_.y, y_unit_, height_ / (4 * font_),
                1.2 * font_ / height_);
    double widest = 0;
    for (const AxisTick& tick : y_.ticks) {
      widest = std::max(widest, TextWidth(tick.label, font_));
    }
    left_ = font_ * 2.4 + widest;
    right_ = width_ - font_ * 1.6;
    bottom_ = height_ - font_ * 3.6;
    x_ = AxisOf(low[0], high[0], figure_.x, x_unit_,
                (right_ - left_) / (6 * font_), font_ / width_);
    // The label of the last tick ends in the picture.
    const AxisTick& last = x_.ticks.back();
    const double half = TextWidth(last.label, font_) / 2;
    right_ = std::min(right_, left_ + (width_ - 0.2 * font_ - half - left_) /
                                          x_.Share(last.value));
  }

  double X(double value) const {
    return left_ + (right_ - left_) * x_.Share(value / x_unit_.size);
  }
  double Y(double value) const {
    return bottom_ - (bottom_ - top_) * y_.Share(value / y_unit_.size);
  }

  std::string SeriesWords() const {
    const std::string& path = figure_.series_path;
    return path.empty() ? std::string("Series") : AxisWords(path);
  }

  // A number says nothing without its name.
  std::string LabelOf(const std::string& name) const {
    double number = 0;
    if (!absl::SimpleAtod(name, &number)) return name;
    const std::string& path = figure_.series_path;
    return absl::StrCat(path.substr(path.rfind('.') + 1), " ", name);
  }

  void AddLine(double x, double y, double to_x, double to_y, size_t series,
               std::vector<Obstacle>* out) const {
    const double steps =
        std::ceil(std::hypot(to_x - x, to_y - y) / (0.5 * font_));
    for (double step = 0; step <= steps; ++step) {
      const double share = steps > 0 ? step / steps : 0;
      out->push_back({x + share * (to_x - x), y + share * (to_y - y), series});
    }
  }

  std::vector<Obstacle> Obstacles() const {
    const size_t none = names_.size();
    std::vector<Obstacle> out;
    std::vector<Obstacle> lines;
    for (const FigurePoint& point : figure_.points) {
      const size_t series = series_.at(point.series);
      const double x = X(point.x);
      const double y = Y(point.y);
      out.push_back({x, y, series});
      if (point.y_range) {
        AddLine(x, Y(point.y_range->first), x, Y(point.y_range->second), none,
                &lines);
      }
      if (point.x_range) {
        AddLine(X(point.x_range->first), y, X(point.x_range->second), y, none,
                &lines);
      }
    }
    const auto add = [&](const std::vector<std::pair<double, double>>& line) {
      for (size_t at = 1; at < line.size(); ++at) {
        AddLine(line[at - 1].first, line[at - 1].second, line[at].first,
                line[at].second, none, &lines);
      }
    };
    if (figure_.front) add(FrontLine());
    if (figure_.kind == FigureKind::kLine) {
      for (size_t series = 0; series < none; ++series) add(LineOf(series));
    }
    out.insert(out.end(), lines.begin(), lines.end());
    return out;
  }

  // By series. Of series that are one point each, those in one place share a
  // label, and the others of them have none.
  std::vector<std::string> JoinedLabels(
      const std::vector<Obstacle>& obstacles) const {
    std::vector<std::string> out;
    for (const std::string& name : names_) out.push_back(LabelOf(name));
    if (figure_.points.size() > names_.size()) return out;
    for (size_t at = 0; at < out.size(); ++at) {
      for (size_t first = 0; first < at; ++first) {
        const Obstacle& one = obstacles[first];
        const Obstacle& other = obstacles[at];
        if (out[first].empty() ||
            std::hypot(one.x - other.x, one.y - other.y) > 0.3 * font_) {
          continue;
        }
        absl::StrAppend(&out[first], ", ", out[at]);
        out[at].clear();
        break;
      }
    }
    return out;
  }

  // A label for each series beside the mark of it that is farthest from those
  // of others. False without room for all: then a legend says what is what.
  bool PlaceLabels() {
    const size_t count = names_.size();
    top_ = figure_.title.empty() ? 0.8 * font_ : 2.4 * font_;
    if (figure_.front) top_ += 1.6 * font_;
    if (count < 2 || figure_.points.size() > kMostLabelledPoints ||
        (count > kMostLabels && count < figure_.points.size())) {
      return false;
    }
    const std::vector<Obstacle> obstacles = Obstacles();
    const double gap = 0.65 * font_;
    const std::vector<std::string> texts = JoinedLabels(obstacles);
    for (size_t series = 0; series < count; ++series) {
      const std::string& name = texts[series];
      if (name.empty()) continue;
      const double width = TextWidth(name, font_);
      double best = 0;
      std::optional<LabelBox> chosen;
      for (size_t at = 0; at < figure_.points.size(); ++at) {
        const Obstacle& mark = obstacles[at];
        if (mark.series != series) continue;
        const LabelBox boxes[] = {
            {mark.x + gap, mark.y, width, font_},
            {mark.x - gap - width, mark.y, width, font_},
            {mark.x - width / 2, mark.y - gap - font_ / 2, width, font_},
            {mark.x - width / 2, mark.y + gap + font_ / 2, width, font_},
            {mark.x + gap / 2, mark.y - gap - font_ / 4, width, font_},
            {mark.x + gap / 2, mark.y + gap + font_ / 4, width, font_},
            {mark.x - gap / 2 - width, mark.y - gap - font_ / 4, width, font_},
            {mark.x - gap / 2 - width, mark.y + gap + font_ / 4, width, font_}};
        for (const LabelBox& box : boxes) {
          const double room = RoomOf(box, series, obstacles);
          // Further away is no better, and the first one reads best.
          if (std::min(room, 3 * font_) <= best + 1e-9) continue;
          best = std::min(room, 3 * font_);
          chosen = box;
        }
      }
      if (!chosen) {
        labels_.clear();
        return false;
      }
      labels_.emplace_back(name, *chosen);
    }
    return true;
  }

  // How far a box is from marks of other series; 0 where it cannot be.
  double RoomOf(const LabelBox& box, size_t series,
                const std::vector<Obstacle>& obstacles) const {
    if (box.left < left_ + 0.2 * font_ || box.left + box.width > width_ ||
        box.middle - box.height / 2 < top_ ||
        box.middle + box.height / 2 > bottom_ - 0.1 * font_) {
      return 0;
    }
    for (const auto& [name, other] : labels_) {
      if (box.Meets(other)) return 0;
    }
    double room = INFINITY;
    for (const Obstacle& each : obstacles) {
      const double away = box.Distance(each.x, each.y);
      // A line may be near, a mark may not.
      const bool is_line = each.series == names_.size();
      if (away < (is_line ? 0.05 : 0.3) * font_) return 0;
      if (each.series != series && !is_line) room = std::min(room, away);
    }
    return room;
  }

  // Title, legend and axes; the legend says where the points begin.
  void DrawAxes(bool labelled) {
    top_ = 0.8 * font_;
    if (!figure_.title.empty()) {
      svg_.Text(left_, 1.4 * font_, figure_.title,
                {.size = 1.2 * font_, .bold = true});
      top_ = 2.4 * font_;
    }
    std::vector<LegendItem> items;
    if (!labelled && names_.size() > 1) {
      items.emplace_back().label = absl::StrCat(SeriesWords(), ":");
      const size_t shown = std::min(names_.size(), kMostInLegend);
      for (size_t series = 0; series < shown; ++series) {
        LegendItem& item = items.emplace_back();
        item.label = names_[series];
        item.width = 0.8 * font_;
        DrawMark(series, 0.4 * font_, 0.58 * font_, "", &item.swatch);
      }
      if (shown < names_.size()) {
        items.emplace_back().label =
            absl::StrCat("and ", names_.size() - shown, " more");
      }
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
      // A small figure keeps a few lines for its points.
      top_ = std::min(top_, bottom_ - 3 * font_);
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
    switch (series % 5) {
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
      case 3:
        svg->Path(PathOf({"M", x, y - 1.4 * size, "L", x + 1.4 * size, y, "L",
                          x, y + 1.4 * size, "L", x - 1.4 * size, y, "Z"}),
                  paint);
        break;
      default:
        svg->Path(PathOf({"M", x, y + 1.3 * size, "L", x + 1.2 * size, y - size,
                          "H", x - 1.2 * size, "Z"}),
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
                             AxisWords(figure_.x.path), point.x / x_unit_.size,
                             x_unit_.name, AxisWords(figure_.y.path),
                             point.y / y_unit_.size, y_unit_.name),
             &svg_);
  }

  using Line = std::vector<std::pair<double, double>>;

  Line LineOf(size_t series) const {
    Line places;
    for (const FigurePoint& point : figure_.points) {
      if (series_.at(point.series) != series) continue;
      places.emplace_back(X(point.x), Y(point.y));
    }
    std::sort(places.begin(), places.end());
    return places;
  }

  Line FrontLine() const {
    Line line;
    for (const size_t index : ParetoFront(figure_)) {
      const double x = X(figure_.points[index].x);
      const double y = Y(figure_.points[index].y);
      // A step: between two points of the front nothing better is known.
      if (!line.empty() && figure_.x.more_is_better) {
        line.emplace_back(line.back().first, y);
      } else if (!line.empty()) {
        line.emplace_back(x, line.back().second);
      }
      line.emplace_back(x, y);
    }
    return line;
  }

  void DrawLine(const Line& line, const Paint& paint) {
    std::string path;
    for (const auto& [x, y] : line) {
      path += PathOf({path.empty() ? "M" : "L", x, y});
    }
    svg_.Path(path, paint);
  }

  void DrawLines() {
    for (size_t series = 0; series < names_.size(); ++series) {
      DrawLine(LineOf(series), {.stroke = ColourOfSeries(series)});
    }
  }

  void DrawFront() { DrawLine(FrontLine(), FrontPaint()); }

  const Figure& figure_;
  const double font_;
  const double width_;
  const double height_;
  Svg svg_;
  std::map<std::string, size_t> series_;
  std::vector<std::string> names_;
  std::vector<std::pair<std::string, LabelBox>> labels_;
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

std::string AxisWords(const std::string& path) {
  for (const auto& [known, words] : kWords) {
    if (path == known) return words;
  }
  // "ranks.0.idle_s": "Ranks 0 idle"; the unit stands behind it.
  std::string words = NameOf(path, "");
  for (const char* ending : {"_s", "_bytes"}) {
    if (absl::EndsWith(path, "per_s")) break;
    words = std::string(absl::StripSuffix(words, ending));
  }
  for (const char* section :
       {"strategy.", "schedule.", "model.", "system.", "costs."}) {
    words = std::string(absl::StripPrefix(words, section));
  }
  words =
      absl::StrReplaceAll(words, {{"_bytes.", " "}, {".", " "}, {"_", " "}});
  if (!words.empty()) words[0] = absl::ascii_toupper(words[0]);
  return words;
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
