// One static page with everything inside: grid, numbers, tables. No network,
// no script from elsewhere.
#pragma once

#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/report/report.h"
#include "sim/trace/trace.h"

namespace pipewright {

std::string ReportHtml(const Report& report, const Program& program,
                       const std::vector<TraceOp>& ops);

}  // namespace pipewright
