// One static page with everything inside: grid, numbers, tables. No network,
// no script from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/trace/trace.h"

namespace pipewright {

// `more`: sections of HTML that follow the headline; may be empty.
std::string ReportHtml(const Report& report, const Program& program,
                       const std::vector<TraceOp>& ops,
                       absl::string_view more = "");

}  // namespace pipewright
