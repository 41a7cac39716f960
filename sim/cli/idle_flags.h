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

// The flags of `execute` that depend on each other.
struct ExecuteFlags {
  bool paced = false;    // --clock paced, which runs no kernels
  bool real = false;     // --clock real, where links take what they take
  bool replays = false;  // --replay-rank
  bool no_check = false;
  bool one_at_a_time = false;
  bool seeded = false;  // --train-seed is not its default
};

// Warns of the flags that do nothing beside the others, and of the fields that
// serve the prediction alone where `run` has no times to predict from.
void WarnOfIdleInExecute(const PreparedRun& run, const ExecuteFlags& flags,
                         std::vector<std::string>* warnings);

}  // namespace pipewright
