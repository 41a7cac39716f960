// What a page draws of the dependencies of a run: the critical path, and the
// graph that its sliders replay. The replay is offered only where it reaches
// what `simulate` reaches with the same factors (--what-if of explain): on the
// engine without contention, for one time for all replicas, without noise.
#pragma once

#include <vector>

#include "sim/report/run_data.h"
#include "sim/run/simulated_run.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

// `ops`: at least those of iteration 0 of the replicas that are drawn.
PageExtras PageExtrasOf(const SimulatedRun& run,
                        const std::vector<TraceOp>& ops);

// The path alone, of any trace of the program: the chain of what ended last
// before each, back from the last end of the iteration. Empty where the trace
// lacks operations or has too many.
std::vector<PagePiece> CriticalPathOf(const Program& program,
                                      const std::vector<TraceOp>& ops);

}  // namespace pipewright
