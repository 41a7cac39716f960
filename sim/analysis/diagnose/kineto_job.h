// Traces of PyTorch's profiler (Kineto), a file a rank, as a job: the regions
// of passes (sim/trace/trace_regions.h says what a region's time is). A step
// ends with the optimizer; without one the trace is one step.
//
// The n-th forward of a stage waits for the n-th of the stage before, the n-th
// backward for the n-th of the stage behind, and a rank runs its regions in
// their recorded order. Messages are not read: the time of a hop is a gap. So
// pipelines without chunks, whose stages all run the microbatches in one order.
#pragma once

#include <array>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "sim/analysis/diagnose/job.h"
#include "sim/trace/trace_regions.h"

namespace pipewright {

struct KinetoJobOptions {
  // See CompileRegions.
  std::array<std::string, kNumRegions> patterns;
  // Stages; 0: as many as there are files. Rank r is replica r mod (files/pp)
  // of stage r / (files/pp), as Megatron-LM numbers ranks.
  int pp = 0;
  int skip = 0;  // steps at the begin
};

class KinetoJob {
 public:
  explicit KinetoJob(KinetoJobOptions options) : options_(std::move(options)) {}

  // Error: kInvalidArgument with the file and the event or pattern.
  absl::Status Add(std::istream& in, const std::string& source);
  // `source`: of the job, the folder. Error: kInvalidArgument with the file
  // whose steps do not fit those of others.
  absl::StatusOr<MeasuredJob> Finish(const std::string& source);

 private:
  struct RankFile {
    int rank = 0;
    std::string source;
    std::vector<std::vector<TraceRegion>> steps;
  };
  absl::Status SplitSteps(std::vector<TraceRegion> regions, RankFile* file);
  absl::Status CheckSteps() const;

  const KinetoJobOptions options_;
  std::vector<RankFile> files_;
  std::vector<std::string> warnings_;
};

}  // namespace pipewright
