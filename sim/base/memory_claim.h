// Memory that a job is going to take, against what there is, before it takes
// any: a system that runs out of it kills processes instead of saying so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pipewright {

// Part of the free memory that is used: libraries' own workspaces and what
// others take meanwhile need the rest.
inline constexpr double kUsableMemory = 0.9;

// `what` needs so much; kResourceExhausted, unless it fits into what is usable
// of `free_bytes` on `where`. `allowed`: what to change.
absl::Status CheckMemory(absl::string_view what, double needed_bytes,
                         double free_bytes, absl::string_view where,
                         absl::string_view allowed);

// What one process takes of something that others may take of too: memory of
// the machine, what a limit leaves, memory of a device.
struct MemoryClaim {
  std::string of;
  std::string scope;  // the same, with the same name, for all who share it
  double free_bytes = 0;
  std::vector<double> bytes;  // in each part of the job, one after the other
};

// All claims of one thing.
struct MemoryNeed {
  std::string of;
  double free_bytes = 0;      // as the one says who found least
  std::vector<double> bytes;  // in each part of the job
  int processes = 0;

  size_t WorstPart() const;
  double most_bytes() const { return bytes[WorstPart()]; }
};
// In the order of the first claim of each. [process][claim], each with all
// parts.
std::vector<MemoryNeed> SumClaims(
    const std::vector<std::vector<MemoryClaim>>& claims);

}  // namespace pipewright
