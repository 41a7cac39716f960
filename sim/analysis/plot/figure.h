// Figures for papers: points or lines of reports, their Pareto front and error
// bars, as one SVG of a stated size in millimetres with a stated font size.
// What is drawn and in which colour is decided here alone; PNG and PDF are made
// from it. Beside them the heat map of diagnose.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

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
  std::string command;  // that runs it alone, for a page; "" for none
};

struct FigureAxis {
  std::string path;  // of the report; decides the unit
  bool more_is_better = false;
  std::string label;  // instead of AxisWords
};

enum class FigureKind : uint8_t { kScatter, kLine };

struct Figure {
  std::string title;  // "" for none
  FigureKind kind = FigureKind::kScatter;
  std::string series_path;  // what tells series apart; "" for none
  // First on a page, a line each; the whole report below its charts.
  std::vector<std::string> verdict;
  std::string report;
  FigureAxis x;
  FigureAxis y;
  std::vector<FigurePoint> points;
  double width_mm = 120;
  double height_mm = 80;
  double font_pt = 8;
  bool front = true;      // draws the Pareto front
  bool in_units = false;  // times are units of a pass
};

// What a path is called on an axis: "Peak memory", else the path's own words.
std::string AxisWords(const std::string& path);

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

// PNG and PDF of an SVG, by librsvg and cairo, which are loaded when they are
// needed (Debian: librsvg2-2). The same SVG gives the same bytes: a PDF bears a
// fixed date.

// Dots a millimetre of a PNG, unless told otherwise: 300 dpi.
inline constexpr double kDotsPerMm = 300 / 25.4;

// Errors: kUnavailable where the libraries are missing, with the package that
// has them; kInternal with the library's message where it cannot draw.
absl::StatusOr<std::string> PngOf(absl::string_view svg, double width_mm,
                                  double height_mm,
                                  double dots_per_mm = kDotsPerMm);
absl::StatusOr<std::string> PdfOf(absl::string_view svg, double width_mm,
                                  double height_mm);

// A table of numbers as coloured cells.
struct HeatMap {
  std::string title;
  std::string row_name;     // "replica": rows are replica 0, 1, ...
  std::string column_name;  // "stage"
  std::string value_name;   // of the legend
  size_t columns = 0;
  std::vector<double> values;  // by row, then by column
  // The value of the lightest colour; the darkest is that of the largest
  // value.
  double from = 0;
};

// Colours go from light to dark, so that they read in grey too; a cell names
// its value in its tooltip, and in itself where there is room. More rows than
// columns lie on their side. Without cells "".
std::string HeatMapSvg(const HeatMap& map);

}  // namespace pipewright
