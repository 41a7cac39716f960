// What a run takes of memory at most, of the device and of this machine's host,
// told before it takes any. The device's part of a rank while it trains is the
// caller's (sim/memory/executor_memory.h); here is what comes to it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "execute/train/training.h"

namespace pipewright {

struct DeviceAndHost {
  int64_t device = 0;
  int64_t host = 0;

  DeviceAndHost& operator+=(const DeviceAndHost& other) {
    device += other.device;
    host += other.host;
    return *this;
  }
};

// Parts of a run, one after the other: the ranks train; what they tell is
// compared with the float64 reference, then with the sequential run.
enum class RunPart : uint8_t { kTraining, kReference, kSequential };
inline constexpr int kNumRunParts = 3;

struct RunMemory {
  std::array<DeviceAndHost, kNumRunParts> parts;
  DeviceAndHost& operator[](RunPart part) {
    return parts[static_cast<size_t>(part)];
  }
};

struct RunMemoryOptions {
  // [replica * pp + rank]: what they hold themselves, and pinned.
  std::vector<DeviceAndHost> ranks;
  // Which of them are of one process, or run one after the other.
  std::vector<int> own;
  bool in_turn = false;
  // Each is a process: what a rank tells is sent to the one of rank 0, which
  // checks it.
  bool processes = false;
};

// `training` as the run gets it: what it leaves out is not counted.
absl::StatusOr<RunMemory> EstimateRunMemory(const Program& program,
                                            const ExecutedModel& model,
                                            const PwKernels* kernels,
                                            const TrainingOptions& training,
                                            const RunMemoryOptions& options);

}  // namespace pipewright
