// Traces of other programs as the measured run: PyTorch's profiler (Kineto) or
// any other Chrome JSON with a region around each pass. Regions are known by
// their names; which microbatch each is follows from the simulated order, the
// n-th forward of a rank there being the n-th one here. So the schedule must
// be the same.
//
// trace_regions.h says what a region's time is. Messages are not read. Where a
// rank would have waited for a message, the message ends when the pass that
// awaits it begins; elsewhere it takes the predicted time.
#pragma once

#include <array>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/trace/trace_read.h"
#include "sim/trace/trace_regions.h"

namespace pipewright {

struct ForeignOptions {
  // See CompileRegions.
  std::array<std::string, kNumRegions> patterns;
  // Which rank a region is of. "file": the file's "distributedInfo.rank", or
  // its place among the files. "pid": the place of its process among those of
  // the regions. "": file where there are several files, else pid.
  std::string rank_of;
  int skip = 0;  // iterations at the begin, for warming up
};

struct ForeignFile {
  std::istream* in = nullptr;
  std::string name;
};

// Every operation as the simulation calls it. Error: kInvalidArgument with
// what is missing.
absl::StatusOr<ReadTrace> ReadForeignTrace(
    const std::vector<ForeignFile>& files, const ForeignOptions& options,
    const ReadTrace& simulated);

// The simulated run without operations that the other one cannot show;
// `warnings` say so. Their time counts as gaps.
ReadTrace WithoutUnknown(const ReadTrace& simulated, const ReadTrace& foreign,
                         std::vector<std::string>* warnings);

}  // namespace pipewright
