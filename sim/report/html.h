// The page of one run: a timeline with zoom, search and sliders, memory over
// time, numbers, tables. Everything is inside: no network, no script from
// elsewhere.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/report/report.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct PageExtras;
struct Program;

// `more`: sections of HTML that follow the headline; may be empty. `extras`:
// critical path and sliders (run_data.h); may be null.
std::string ReportHtml(const Report& report, const Program& program,
                       const std::vector<TraceOp>& ops,
                       absl::string_view more = "",
                       const PageExtras* extras = nullptr);

// A card of the headline.
std::string ThroughputCard(const Throughput& throughput);

// A section: the operations that take longest, with FLOPs, bytes, time, share.
std::string CostSection(const CostReport& report);

}  // namespace pipewright
