// Sections of the page of one run that have files of their own; for html.cc.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/report/cost_report.h"
#include "sim/report/page_data.h"
#include "sim/report/report.h"
#include "sim/report/run_data.h"
#include "sim/report/throughput.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

// What every section sees; `replica` and `iteration` are those drawn.
struct RunPage {
  const Report& report;
  const Program& program;
  const std::vector<TraceOp>& ops;
  absl::string_view more;
  const PageExtras* extras = nullptr;
  int replica = 0;
  int iteration = 0;

  bool Shows(const TraceOp& op) const {
    return op.replica == replica && op.iteration == iteration;
  }
  // "1f1b, iteration 0, data-parallel replica 1".
  std::string PictureTitle() const;
  // Whose bytes are drawn: of the class that they are of, which need not be
  // the slowest.
  int MemoryReplica() const;
};

// The timeline that the script draws, with its sliders and memory.
std::string TimelineSection(const RunPage& page);
// The static picture in its place.
std::string GridSection(const RunPage& page);
std::string MemoryBytesSection(const RunPage& page);
// "" where nothing is drawn.
std::string TimelineData(const RunPage& page);

// A card of the headline.
std::string ThroughputCard(const Throughput& throughput);

// A section: the operations that take longest, with FLOPs, bytes, time, share.
std::string CostSection(const CostReport& report);

}  // namespace pipewright
