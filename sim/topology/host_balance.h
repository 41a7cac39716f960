// Ranks on nodes so that the memory of hosts is evenly used: early ranks of a
// pipeline keep activations longest and so have most of them on their host,
// late ones fewest. Each node gets as many of the first ranks that are left as
// of the last ones (PipeOffload, arXiv 2503.01328, appendix D: 16 ranks on two
// nodes as 0 to 3 with 12 to 15, and 4 to 11). More hops go between nodes.
#pragma once

#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

// The name of the order beside those of RankMapping::FromOrder.
inline constexpr char kHostBalance[] = "host-balance";

// The first device of each rank, [replica * pp + rank], for
// RankMapping::FromList. A pipeline that is no longer than a node stands in the
// order of its ranks. Error: kInvalidArgument where a pipeline does not fill
// nodes, or a node and its halves are no whole number of ranks.
absl::StatusOr<std::vector<int>> HostBalancedDevices(int pp, int dp,
                                                     int devices_per_node,
                                                     int devices_per_rank);

}  // namespace pipewright
