// A table of numbers as coloured cells, one SVG. It knows nothing of what they
// mean: diagnose draws workers by stage and replica.
#pragma once

#include <string>
#include <vector>

namespace pipewright {

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
