// `pipewright calibrate import`: a profile from what others measured.
#pragma once

#include <CLI/CLI.hpp>

#include "sim/cli/common.h"

namespace pipewright {

// Adds the sub-command to the verb `calibrate`.
void AddCalibrateImport(CLI::App* calibrate, Action* action);

}  // namespace pipewright
