// Parts of the page of `pipewright execute` that simulate's page does not have.
#pragma once

#include <string>
#include <vector>

#include "sim/cli/execute_report.h"

namespace pipewright {

// "zb-v, pp 4, 8 microbatches, virtual clock", above a grid.
std::string ExecuteTitle(const ExecuteReport& report);

// Sections of HTML: how it was executed and what that does not show, the check
// against the sequential run, measured against predicted by rank.
std::string ExecuteSections(const ExecuteReport& report,
                            const std::vector<double>& step_s);

}  // namespace pipewright
