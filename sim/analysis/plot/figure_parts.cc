// What of a figure is no picture: its units, its Pareto front, CSV.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/plot/figure.h"
#include "sim/report/format.h"

namespace pipewright {
namespace {

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
