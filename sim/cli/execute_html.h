// The page of `pipewright execute`.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/execute_report.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

// "zb-v, pp 4, 8 microbatches, virtual clock", above a grid.
std::string ExecuteTitle(const ExecuteReport& report);

// The page of the run. Beside that of a simulated one: how it was executed and
// what that does not show, the check against the sequential run, measured
// against predicted by rank.
std::string ExecutePage(const ExecuteReport& report, const Program& program,
                        const std::vector<TraceOp>& ops,
                        const std::vector<double>& step_s);

}  // namespace pipewright
