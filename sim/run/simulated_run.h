// From a configuration to its result, the one way for every caller: prepare,
// lower, run on an engine, summarise, describe. It prints nothing; the warnings
// are in the result.
//
// Threads: on engine `fast` any number of runs may go on at once, with one
// RunContext for all of them. Engine `simgrid` forks a child for each run
// (simgrid_child.h), and a child of a process with several threads may find
// locks that nobody will ever release. So whoever runs simgrid in parallel does
// it in worker processes of one thread each, started before any thread is.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/config/prepare.h"
#include "sim/config/run_config.h"
#include "sim/config/run_context.h"
#include "sim/engine/engine.h"
#include "sim/engine/step_interval.h"
#include "sim/report/report.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

// What a caller wants besides the numbers. Nothing that is not asked for costs
// anything.
struct SimulateOptions {
  TraceSink* trace = nullptr;          // gets the operations; may be null
  Progress* progress = nullptr;        // told by the engine; may be null
  const EngineInfo* engine = nullptr;  // null: that of the configuration
  bool interval = false;               // Report::interval: replays the step
  // Sees what would run; an error ends it there. May be null.
  std::function<absl::Status(const PreparedRun&, const Program&)> admit;
  // Finds what would help where the memory does not suffice
  // (MemoryReport::changes); it is called for nothing else. May be null.
  std::function<std::vector<MemoryChange>(const PreparedRun&)> advise;
};

struct SimulatedRun {
  PreparedRun prepared;
  std::shared_ptr<const Program> program;  // never null
  RunSummary summary;
  Report report;

  const Schedule& schedule() const { return *prepared.schedule.lowered; }
  const std::vector<std::string>& warnings() const { return prepared.warnings; }
  // Nothing without a model.
  const std::optional<MemoryReport>& memory() const { return report.memory; }
};

// Errors: those of Prepare, Lower, `admit` and the engine. A run that does not
// fit is a result: see Report::fits and PreparedRun::limit().
absl::StatusOr<SimulatedRun> Simulate(const RunConfig& config,
                                      RunContext* context,
                                      const SimulateOptions& options = {});

// The same from a prepared run on.
absl::StatusOr<SimulatedRun> Simulate(PreparedRun prepared,
                                      const SimulateOptions& options = {});

// The same configuration with `order` in place of its schedule: a file that is
// in `context` alone.
RunConfig WithOrder(RunConfig config, const Schedule& order,
                    RunContext* context);

// The same for a program that is there already, lowered from `prepared`.
struct ProgramResult {
  RunSummary summary;
  Report report;
};
absl::StatusOr<ProgramResult> SimulateProgram(
    const PreparedRun& prepared, const Program& program,
    const SimulateOptions& options = {});

// The interval of a step that takes `iteration_s` on an engine. Nothing where
// the times were given, or where their error is not known: the warnings of
// Prepare say so. `program`: of run.lower. Errors: as RunFast.
absl::StatusOr<std::optional<StepInterval>> PredictStepOf(
    const PreparedRun& run, const Program& program, double iteration_s);

}  // namespace pipewright
