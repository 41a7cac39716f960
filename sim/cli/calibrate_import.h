// `pipewright calibrate import`: a profile from what others measured.
#pragma once

#include <CLI/CLI.hpp>

#include "sim/cli/common.h"

namespace pipewright {

// Adds the sub-command to the verb `calibrate`, whose own callback runs after
// this one and must leave the action alone when get_subcommands() is not empty.
void AddCalibrateImport(CLI::App* calibrate, Action* action);

}  // namespace pipewright
