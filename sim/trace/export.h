// Traces for viewers. A process a rank, a track a stream, flow arrows for
// transfers, a counter of activations in flight for each rank and, where
// `memory` is not null, of its bytes.
#pragma once

#include <string>
#include <vector>

#include "sim/memory/schedule_memory.h"
#include "sim/program/program.h"
#include "sim/trace/trace.h"

namespace pipewright {

// Chrome's JSON ("traceEvents", microseconds).
std::string ChromeTraceJson(const Program& program,
                            const std::vector<TraceOp>& ops,
                            const ScheduleMemory* memory = nullptr);

// Perfetto TrackEvent protobuf (bytes of a perfetto.protos.Trace).
std::string PerfettoTrace(const Program& program,
                          const std::vector<TraceOp>& ops,
                          const ScheduleMemory* memory = nullptr);

}  // namespace pipewright
