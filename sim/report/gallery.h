// One page with many schedules on the same time axis: a table of their times,
// bubbles and memory, the fastest first, then a timeline each. All move
// together. No network.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "sim/report/report.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

struct GalleryEntry {
  std::string name;
  std::string summary;
  std::string source;
  // Why it could not be built for these sizes; "" where it was. Then all that
  // follows is empty.
  std::string refusal;
  Report report;
  std::shared_ptr<const Program> program;
  std::vector<TraceOp> ops;  // one replica's first iteration
};

struct Gallery {
  std::vector<std::string> facts;  // what is the same for all: "pp 4"
  std::vector<std::string> warnings;
  std::vector<GalleryEntry> entries;
  // SVG: the numbers of kGalleryCharts against peak activations, in this order.
  std::vector<std::string> figures;
};

// What stands against peak activations, as paths of the report.
inline constexpr char kGalleryX[] = "peak_activations.max";
inline constexpr const char* kGalleryCharts[] = {"bubble_fraction.per_rank",
                                                 "iteration_s"};

std::string GalleryHtml(const Gallery& gallery);

}  // namespace pipewright
