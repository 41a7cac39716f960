// Figures for papers: points or lines of reports, their Pareto front and error
// bars, as one SVG of a stated size in millimetres with a stated font size.
// What is drawn and in which colour is decided here alone; PNG and PDF are made
// from this SVG (raster.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace pipewright {

struct FigurePoint {
  std::string name;    // for tooltips and CSV
  std::string series;  // points of one series share colour and mark
  double x = 0;
  double y = 0;
  // Low and high, where the report says how far off a value may be.
  std::optional<std::pair<double, double>> x_range;
  std::optional<std::pair<double, double>> y_range;
  // Further columns of a page's table: numbers of the report, and what a sweep
  // was asked for. Points may have different ones.
  std::vector<std::pair<std::string, double>> numbers;
  // Ends of such a column, as x_range and y_range of the axes.
  std::vector<std::pair<std::string, std::pair<double, double>>> ranges;
  std::vector<std::pair<std::string, std::string>> words;
};

struct FigureAxis {
  std::string path;  // of the report; decides the unit
  bool more_is_better = false;
};

enum class FigureKind : uint8_t { kScatter, kLine };

struct Figure {
  std::string title;  // "" for none
  FigureKind kind = FigureKind::kScatter;
  FigureAxis x;
  FigureAxis y;
  std::vector<FigurePoint> points;
  double width_mm = 120;
  double height_mm = 80;
  double font_pt = 8;
  bool front = true;  // draws the Pareto front
};

// Is more of it better (throughput), or less (times, bubbles, memory)?
bool MoreIsBetter(const std::string& path);

// Indexes of the points that no other is better than in one axis and at least
// as good as in the other, by x. Of equal points the first.
std::vector<size_t> ParetoFront(const Figure& figure);

// The unit of an axis, "ms" with 1e-3; "" with 1 where there is none.
struct AxisUnit {
  std::string name;
  double size = 1;
};
AxisUnit UnitOf(const std::string& path, double largest);

std::string FigureSvg(const Figure& figure);
// A row a point; values in seconds, bytes and shares, as in the report.
std::string FigureCsv(const Figure& figure);
// The figure, bubble and throughput against memory, and a table of the points
// that sorts and filters, on one page offline.
std::string FigureHtml(const Figure& figure);

}  // namespace pipewright
