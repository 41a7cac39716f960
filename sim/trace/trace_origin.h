// The origin of a trace's times and counters. Every trace contains it, and
// compare reads it, so that it never takes a given time for a measured one.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// What the time of a run is made of.
inline constexpr absl::string_view kKernelTimes = "kernels";
inline constexpr absl::string_view kTransferTimes = "transfers";
inline constexpr absl::string_view kCopyTimes = "copies";
inline constexpr absl::string_view kSynchronisationTimes = "synchronisation";
inline constexpr absl::string_view kOptimizerTimes = "optimizer";
inline constexpr absl::string_view kGapTimes = "gaps";

// Clocks of a simulated run, and of one that an older version has written.
inline constexpr absl::string_view kSimulatedClock = "simulated";
inline constexpr absl::string_view kUnknownClock = "unknown";

// The key "time_unit" of a trace whose seconds are units of a pass.
inline constexpr absl::string_view kUnitOfPass = "unit";
// What viewers then show beside the name of each process.
inline constexpr absl::string_view kUnitOfPassLabel =
    "1 s stands for 1 unit of a pass";

// What the counter "memory" counts: what a model says that a device's allocator
// has to hold; what the executor has allocated.
inline constexpr absl::string_view kAllocatorMemory = "allocator";
inline constexpr absl::string_view kExecutorMemory = "executor";

// What the counter "activations in flight" counts: passes, by their order.
inline constexpr absl::string_view kCountedFromOrder = "order";

struct TraceOrigin {
  // kSimulatedClock; of the executor "virtual", "paced" or "real".
  std::string clock = std::string(kUnknownClock);
  // Times of the list above that the program gave to the executor, which has
  // measured all others; empty for a simulated run.
  std::vector<std::string> given;
  // Rank that alone has run: the others' times are given as well.
  std::string only_rank;
  // The class of each data-parallel replica, "0 0 1"; "": all are alike.
  std::string dp_classes;
  std::string memory;       // "": unknown, or no such counter
  std::string activations;  // "": unknown, or no such counter
  // What is called seconds is units of a pass that nobody has given a time.
  bool in_units = false;

  bool Gave(absl::string_view times) const {
    return std::find(given.begin(), given.end(), times) != given.end();
  }
};

}  // namespace pipewright
