// The schedule grid as papers draw it: a row a rank, a box a pass, time to
// scale, microbatch numbers where they fit.
#pragma once

#include <string>
#include <vector>

#include "sim/report/svg_parts.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

struct GridOptions {
  int replica = 0;  // data-parallel
  int iteration = 0;
  double width_px = 1600;  // of the time axis
  double row_px = 28;
  std::string title;
  // Where the time axis ends, so that several pictures share one; never before
  // the last operation.
  double end_s = 0;
  // Behind the names of what the picture defines, for a page with several.
  std::string suffix;
};

// Colours are from the Okabe-Ito palette, told apart by lightness too. As a
// part of a picture; `height` is what it takes. The time axis begins at
// kGridLeft.
inline constexpr double kGridLeft = 66;
Svg ScheduleGrid(const Program& program, const std::vector<TraceOp>& ops,
                 const GridOptions& options, double* height);
// The same as a picture of its own.
std::string ScheduleGridSvg(const Program& program,
                            const std::vector<TraceOp>& ops,
                            const GridOptions& options);

}  // namespace pipewright
