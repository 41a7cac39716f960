// The verbs, one file each. Each adds its subcommand; running it is the
// Action, whose status becomes the exit code (sim/base/status.h).
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/cli/common.h"

namespace pipewright {

struct Gallery;
struct RunConfig;

void AddSimulate(CLI::App* app, Action* action);
void AddSchedule(CLI::App* app, Action* action);
void AddCheck(CLI::App* app, Action* action);
void AddList(CLI::App* app, Action* action);
void AddCompare(CLI::App* app, Action* action);
void AddReproduce(CLI::App* app, Action* action);
void AddCalibrate(CLI::App* app, Action* action);
void AddExecute(CLI::App* app, Action* action);
void AddSweep(CLI::App* app, Action* action);
void AddPlan(CLI::App* app, Action* action);
void AddExplain(CLI::App* app, Action* action);
void AddDiagnose(CLI::App* app, Action* action);
void AddPlot(CLI::App* app, Action* action);
void AddInit(CLI::App* app, Action* action);
void AddVersion(CLI::App* app, Action* action);
void AddCompletion(CLI::App* app, Action* action);
void AddMan(CLI::App* app, Action* action);
void AddHelp(CLI::App* app, Action* action);

// --version.
void AddVersionFlag(CLI::App* app);

// All of them.
void AddVerbs(CLI::App* app, Action* action);

// What `init` writes.
const std::vector<std::string>& InitTemplates();

// Every registered schedule with one set of sizes and times, for the page of
// `list schedules --html`: pp 4 and 8 microbatches unless `config` says
// otherwise, on the engine fast. A schedule that refuses is an entry with its
// reason. Error: every one does.
absl::StatusOr<Gallery> CollectGallery(const RunConfig& config);

// Parses and runs; returns the exit code.
int RunCommandLine(int argc, char** argv);

// `pipewright calibrate import`: a profile from what others measured.

// Adds the sub-command to the verb `calibrate`, whose own callback runs after
// this one and must leave the action alone when get_subcommands() is not empty.
void AddCalibrateImport(CLI::App* calibrate, Action* action);

}  // namespace pipewright
