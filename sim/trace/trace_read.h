// Reads back what ChromeTraceJson has written: the operations of a run of the
// simulator or of the executor. Times are seconds from the start of the run,
// in whole nanoseconds, as the file has them.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/program/network.h"
#include "sim/schedule/pass.h"
#include "sim/trace/trace.h"
#include "sim/trace/trace_events.h"
#include "sim/trace/trace_origin.h"

namespace pipewright {

struct ReadOp {
  TraceOp op;          // channel and side_op are not in the file: -1
  int32_t peer = -1;   // for transfers: the other rank
  int32_t group = -1;  // for collectives: index in ReadTrace::groups
};

// The highest value of a counter of one rank.
struct ReadPeak {
  int32_t replica = 0;
  int32_t rank = 0;
  std::string counter;  // "memory", "activations in flight"
  double value = 0;
};

struct ReadTrace {
  std::string source;    // file
  std::string schedule;  // "" where not known
  WaitRule wait_rule = WaitRule::kBuffered;
  TraceOrigin origin;
  std::vector<ReadOp> ops;  // in the file's order; no waits
  std::vector<std::string> groups;
  std::vector<ReadPeak> peaks;
};

// Was a trace with this header written by ChromeTraceJson?
bool IsOwnTrace(const TraceHeader& header);
// The same of a file; our own traces say so before the first event. Error: the
// file cannot be read, or is no trace.
absl::StatusOr<bool> IsOwnTraceFile(const std::string& path);

// Error: kInvalidArgument with the file, the event and the field.
absl::StatusOr<ReadTrace> ReadChromeTrace(std::istream& in,
                                          const std::string& source);

// "F3.1", "BW0" and so on: as PassToString where chunk and slice are not 0.
std::string PassLabel(Pass pass);

}  // namespace pipewright
