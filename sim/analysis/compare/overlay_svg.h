// Two timelines on one axis: for each rank a lane as simulated and below it a
// lane as measured, both from the iteration's first pass on.
#pragma once

#include <string>

#include "sim/analysis/compare/paired_run.h"

namespace pipewright {

struct OverlayOptions {
  int replica = 0;  // data-parallel
  int iteration = 0;
  double width_px = 1600;  // width of the time axis
  double lane_px = 16;
  std::string title;
};

// Operations of compute streams; numbers of microbatches where they fit.
std::string OverlaySvg(const PairedRun& run, const OverlayOptions& options);

}  // namespace pipewright
