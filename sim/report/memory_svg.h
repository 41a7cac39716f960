// Memory of ranks as pictures: over time, and at each rank's peak. Areas are
// stacked by what the memory is used for.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/memory/schedule_memory.h"
#include "sim/trace/trace.h"

namespace pipewright {

struct Program;

struct MemoryPicture {
  int replica = 0;  // data-parallel
  int iteration = 0;
  double width_px = 1100;  // of the time axis
  size_t most_rows = 8;    // of more ranks: the first, the last and the worst
                           // ones, and some between
  // A dashed line; what context and fragmentation need is taken off already.
  std::optional<double> limit_bytes;
  std::string title;  // above the picture; "" for none
};

// "#0072B2", of a MemoryKind by its number, in every picture.
absl::string_view MemoryKindColour(int kind);

// A row a rank. "" where no rank has a pass in `ops`.
std::string MemoryOverTimeSvg(const Program& program,
                              const ScheduleMemory& memory,
                              const std::vector<TraceOp>& ops,
                              const MemoryPicture& picture);

}  // namespace pipewright
