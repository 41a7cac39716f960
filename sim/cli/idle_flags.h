// Fields of the configuration that matter to a simulated run, but not to what
// another verb makes of it. PreparedRun::idle has those that do not even matter
// to a simulated run.
#pragma once

#include <string>
#include <vector>

#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

// A warning for each flag and --set that the order of `run`, prepared from
// `config`, does not depend on: without it the same order is built. Where an
// order is planned for given times, what times and links are made of is not
// looked at.
std::vector<std::string> IdleInSchedule(const RunConfig& config,
                                        const PreparedRun& run);

// The same for `check` of a schedule file, which uses little besides limits;
// without system.memory it prepares no run.
std::vector<std::string> IdleInCheck(const RunConfig& config,
                                     const Schedule& schedule);

}  // namespace pipewright
