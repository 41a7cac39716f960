// Memory of a run as numbers and words: keys of docs/json-and-exit-codes.md, a
// table by rank, whether it fits and what would help. The sizes themselves are
// sim/memory's.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "sim/memory/schedule_memory.h"
#include "sim/schedule/schedule.h"

namespace pipewright {

class Json;

// A change of the configuration and what the worst rank then needs.
struct MemoryChange {
  std::string change;  // "strategy.recompute full", "strategy.tp 4 (was 2)"
  double needed_bytes = 0;
  double saved_bytes = 0;  // on the worst rank
  bool fits = false;       // this alone is enough
};

// Largest error of a peak, as a share: ten runs on B200
// (experiments/papers/simumax_memory).
inline constexpr double kMemoryError = 0.006;

struct MemoryReport {
  std::shared_ptr<const Schedule> schedule;  // schedule of the passes named
  std::shared_ptr<const ScheduleMemory> memory;
  std::optional<double> limit_bytes;  // for one device
  std::string limit_source;           // "system.memory", "H100 SXM5 80GB"
  std::vector<MemoryChange> changes;  // most helpful first; when it fits not
  // Limit of a node's host, which all devices on it share.
  std::optional<double> host_limit_bytes;
  // [node][rank]: devices of that rank there. Empty without a system: then the
  // limit is that of one device.
  std::vector<std::vector<int>> devices_on_node;

  bool fits() const;
  // Without what the allocator holds beyond its peak: PyTorch gives that back
  // before it fails.
  bool fits_device() const;
  // Only without it.
  bool fits_tightly() const;
  // Fits, but tightly or by less than kMemoryError of the peak.
  bool is_near_limit() const;
  bool fits_host() const;
  // The most that the devices of one node keep on their host.
  double HostNeeded() const;
  // What the limit leaves to the allocator of the worst rank.
  std::optional<double> allocator_limit() const;
};

// "BW3 (stage 0, layer 5 activation)".
std::string MemoryCause(const MemoryReport& report, int rank);

// OK, or kResourceExhausted: by how much, where, and what would help most.
absl::Status MemoryVerdict(const MemoryReport& report);

// The value of the key "memory".
Json MemoryToJson(const MemoryReport& report);

// What a device holds outside of the allocator, in words.
std::string BeyondAllocator(const RankMemory& rank);

// A table and a verdict, lines ended; at most `rows` ranks.
std::string MemoryToText(const MemoryReport& report, size_t rows);

// Header, and a row a rank; sizes in GiB.
struct MemoryTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;
};
MemoryTable MemoryTableOf(const MemoryReport& report);

// "rank 0 needs 67.5 GiB of 79.65 GiB (H100 SXM5 80GB): fits"; "" without a
// limit.
std::string MemoryVerdictLine(const MemoryReport& report);

}  // namespace pipewright
