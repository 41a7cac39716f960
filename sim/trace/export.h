// Traces for viewers. A process a rank, a track a stream, flow arrows for
// transfers, a counter of activations in flight for each rank and, where
// `memory` or `measured` is not null, of its bytes.
#pragma once

#include <string>
#include <vector>

#include "sim/memory/schedule_memory.h"
#include "sim/trace/trace.h"
#include "sim/trace/trace_origin.h"

namespace pipewright {

struct Program;

// Bytes of a rank's memory as a run has measured them: the most during a pass,
// and the amount in use after it.
struct PassBytes {
  double peak = 0;
  double after = 0;
};
// [replica * pp + rank][pass, in the order in which they have run]; a rank with
// another number of passes than in the trace is left out.
using MeasuredMemory = std::vector<std::vector<PassBytes>>;

// Chrome's JSON ("traceEvents", microseconds); `origin` is in "otherData", its
// `memory` only where there is such a counter.
std::string ChromeTraceJson(const Program& program,
                            const std::vector<TraceOp>& ops,
                            const ScheduleMemory* memory = nullptr,
                            const MeasuredMemory* measured = nullptr,
                            const TraceOrigin& origin = {});

// Perfetto TrackEvent protobuf (bytes of a perfetto.protos.Trace).
std::string PerfettoTrace(const Program& program,
                          const std::vector<TraceOp>& ops,
                          const ScheduleMemory* memory = nullptr,
                          const MeasuredMemory* measured = nullptr);

}  // namespace pipewright
