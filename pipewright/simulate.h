// Runs in simulated time for programs outside of this repository: ReadConfig
// takes a configuration's text, Simulate runs it, the result has the report.
// Times are seconds. Target pipewright::simulation.
#pragma once

#include "sim/config/run_config.h"  // IWYU pragma: export
#include "sim/run/simulated_run.h"  // IWYU pragma: export
