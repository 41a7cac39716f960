// Time of a collective as NCCL's tuner estimates it (NVIDIA/nccl v2.28.9,
// src/graph/tuning.cc): latency + bytes over bandwidth, the smallest over
// algorithms (ring, and tree for all-reduce) and protocols (LL, LL128,
// Simple). For collectives inside a pass, which the Program does not show.
#pragma once

#include "absl/strings/string_view.h"
#include "sim/model/ops.h"

namespace pipewright {

enum class NcclGeneration { kVolta, kAmpere, kHopper, kBlackwell };

struct NcclGroup {
  int ranks = 1;
  int nodes = 1;
  int channels = 1;
  // Of one channel, GB/s: what the topology search found.
  double channel_GBps = 0;
  NcclGeneration generation = NcclGeneration::kAmpere;
};

enum class NcclCollective { kAllReduce, kAllGather, kReduceScatter };

// `bytes`: the whole buffer (of an all-gather what a rank has afterwards).
double NcclSeconds(NcclCollective collective, const NcclGroup& group,
                   double bytes);

// The same for one algorithm and protocol ("ring", "LL128"), for tests; a
// negative result: not offered.
double NcclSeconds(NcclCollective collective, absl::string_view algorithm,
                   absl::string_view protocol, const NcclGroup& group,
                   double bytes);

}  // namespace pipewright
