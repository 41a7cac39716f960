// Passes as CUDA graphs: what is queued once is launched as one from then on.
// For small shapes, where launching kernel by kernel takes longer than the
// kernels.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "calibrate/device.h"
#include "calibrate/part_bench.h"

namespace pipewright {

// Layers on a GPU whose forward takes less than about a millisecond.
bool TakesGraphs(const MeasuredDevice& device, const PartBench& bench);

class PassGraphs {
 public:
  explicit PassGraphs(MeasuredDevice* device) : device_(device) {}
  ~PassGraphs() { Clear(); }
  PassGraphs(const PassGraphs&) = delete;
  PassGraphs& operator=(const PassGraphs&) = delete;

  // Makes a graph of each of `works` and launches it once, so that no timing
  // contains what a first launch brings to the device. The works queue on the
  // device's own stream and have run before. It does nothing while `place`,
  // where their memory lies, is that of the last call.
  absl::Status Capture(const void* place,
                       const std::vector<std::function<absl::Status()>>& works);
  absl::Status Launch(size_t index);

 private:
  void Clear();

  MeasuredDevice* device_;
  const void* place_ = nullptr;
  std::vector<PwGraph*> graphs_;
};

}  // namespace pipewright
