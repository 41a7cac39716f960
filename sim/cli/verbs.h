// The verbs, one file each. Each adds its subcommand; running it is the
// Action, whose status becomes the exit code (sim/base/status.h).
#pragma once

#include <CLI/CLI.hpp>

#include "sim/cli/common.h"

namespace pipewright {

void AddSimulate(CLI::App* app, Action* action);
void AddSchedule(CLI::App* app, Action* action);
void AddCheck(CLI::App* app, Action* action);
void AddList(CLI::App* app, Action* action);
void AddCompare(CLI::App* app, Action* action);
void AddReproduce(CLI::App* app, Action* action);
void AddCalibrate(CLI::App* app, Action* action);
void AddExecute(CLI::App* app, Action* action);
void AddInit(CLI::App* app, Action* action);
void AddVersion(CLI::App* app, Action* action);

// All of them.
void AddVerbs(CLI::App* app, Action* action);

// Parses and runs; returns the exit code.
int RunCommandLine(int argc, char** argv);

}  // namespace pipewright
