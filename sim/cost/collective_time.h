// Time of a collective, by whatever is known of it: a measurement, or the links
// that it runs over. TimeOfCollective is the one place that decides which;
// exchanges inside passes (analytic.h, profile_costs.h) and the collectives of
// a Program (network_time.h) both ask it. It knows neither.
//
// Bytes are those of the whole buffer: of an all-gather what a member has
// afterwards, of a reduce-scatter what it has before.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>

#include "absl/strings/string_view.h"
#include "sim/profile/profile.h"

namespace pipewright {

enum class NcclGeneration { kVolta, kAmpere, kHopper, kBlackwell };

// Members as NCCL's tuner sees them (NVIDIA/nccl v2.28.9,
// src/graph/tuning.cc): latency + bytes over bandwidth, the smallest over
// algorithms (ring, and tree for all-reduce) and protocols (LL, LL128, Simple).
struct NcclGroup {
  int ranks = 1;
  int nodes = 1;
  int channels = 1;
  // Rate of one channel, GB/s, as the topology search found it.
  double channel_GBps = 0;
  // Latencies of links that NCCL's own times do not know: of one way round a
  // ring, and of the longest way between two nodes.
  double ring_latency_s = 0;
  double latency_s = 0;
  // Members of a node talk over NVLink, else over PCIe.
  bool has_nvlink = true;
  NcclGeneration generation = NcclGeneration::kAmpere;
};

// Rings over links that are known one by one. A ring sends (n-1)/n of its part
// of the buffer over each of its edges, twice for an all-reduce, in n-1 (or
// twice as many) steps. Where latency decides (the buffer takes no longer than
// one hop's latency) all-reduce and barrier of more than two may use recursive
// doubling instead, log2(n) steps of the whole buffer (nccl-tests
// doc/PERFORMANCE.md; NCCL src/graph/tuning.cc).
struct RingLinks {
  double latency_s = 0;         // on the longest edge
  double edge_bytes_per_s = 0;  // on the slowest edge that runs alone
  double ring_bytes_per_s = 0;  // on each edge while all of them run
  int rings = 1;                // that divide the buffer
};

// Empty: nothing is known of them.
using CollectiveLinks = std::variant<std::monostate, NcclGroup, RingLinks>;

// A profile, and which of its measurements are of members like these.
struct MeasuredMembers {
  const Profile* profile = nullptr;
  // On so many nodes; 0: wherever they were.
  int64_t nodes = 0;
  // Transport of TransferEntry; "": the first of nccl, mpi, threads.
  absl::string_view transport;
  // Also of fewer and more members, with the time between them.
  bool between_ranks = false;
};

enum class CollectiveKind { kAllReduce, kAllGather, kReduceScatter, kBarrier };
// As TransferEntry::operation, "all_reduce".
absl::string_view CollectiveName(CollectiveKind kind);

struct CollectiveTime {
  enum class From { kNothing, kMeasured, kTuner, kRing, kDoubling };
  From from = From::kNothing;  // kNothing: one member needs no time
  double seconds = 0;
  double latency_s = 0;        // for kRing and kDoubling: without bytes
  double bytes_per_edge = 0;   // for kRing
  bool inside = true;          // for kMeasured: within the measured sizes
  bool between_ranks = false;  // and of fewer and of more members
};

// Measured where `measured` (may be null) has it, else of the links. Nothing
// where neither tells.
std::optional<CollectiveTime> TimeOfCollective(
    CollectiveKind kind, double bytes, int members,
    const CollectiveLinks& links, const MeasuredMembers* measured = nullptr);

// The tuner's for one algorithm and protocol ("ring", "LL128"), for tests; a
// negative result: not offered.
double NcclSeconds(CollectiveKind collective, absl::string_view algorithm,
                   absl::string_view protocol, const NcclGroup& group,
                   double bytes);

}  // namespace pipewright
