// The device of each pipeline rank of each data-parallel replica.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/topology/cluster.h"

namespace pipewright {

class RankMapping {
 public:
  // `order` names the axes tp, cp, dp and pp from the fastest to the slowest:
  // "tp-cp-dp-pp" as Megatron (megatron/core/parallel_state.py, RankGenerator).
  // Without tp and cp they are the fastest, in front of others that are named:
  // "dp-pp" (replicas next to each other), "pp-dp" (a pipeline next to itself).
  // Groups of experts are next to each other in dp * cp; with "ep" behind dp
  // they are as far apart as they can be. "bitpipe" is "pp-dp" with rank k in
  // place k where k is even, pp-k where it is odd: the two ranks that hold the
  // same stages of a bidirectional schedule, k and pp-1-k, are neighbours
  // (wuhouming/BitPipe 6fb0e22f). A rank has `devices_per_rank` devices, of
  // each of `contexts` parts of a context as many; the n-th talks to the n-th
  // of other ranks. Error: kInvalidArgument for another order, one that lacks
  // an axis with a degree above 1, an odd pp with "bitpipe", or when they are
  // more than `devices`.
  static absl::StatusOr<RankMapping> FromOrder(absl::string_view order, int pp,
                                               int dp, int devices,
                                               int devices_per_rank = 1,
                                               int contexts = 1);
  // device_of[replica * pp + rank], the first of each rank; each device in at
  // most one rank, all below `devices`.
  static absl::StatusOr<RankMapping> FromList(std::vector<int> device_of,
                                              int pp, int dp, int devices,
                                              int devices_per_rank = 1);

  int pp() const { return pp_; }
  int dp() const { return dp_; }
  int devices_per_rank() const { return devices_per_rank_; }
  // Device `index` of a rank, from 0.
  int DeviceOf(int replica, int rank, int index = 0) const {
    return device_of_[replica * pp_ + rank] + offset_of_[index];
  }
  // Are the devices of a rank next to each other, tp before cp, and groups of
  // experts, too?
  bool is_plain() const { return plain_; }
  // Those that share experts with this part of a context, `members` of them
  // with it: replica and part.
  std::vector<std::pair<int, int>> ExpertsWith(int replica, int context,
                                               int contexts, int members) const;
  // The devices of a rank by name: "node0/gpu0", "node0/gpu0 to node0/gpu7";
  // where they stand apart "node0/gpu0, node0/gpu2 to node1/gpu6".
  std::string NameOf(const Cluster& cluster, int replica, int rank) const;

  // A line a rank: "rank 0: node0/gpu0 node1/gpu0", a column a replica.
  std::string ToString(const Cluster& cluster) const;

 private:
  RankMapping(int pp, int dp, int devices_per_rank, std::vector<int> device_of);

  int pp_;
  int dp_;
  std::vector<int> device_of_;
  int devices_per_rank_;
  std::vector<int> offset_of_;  // [index]
  bool plain_ = true;
  bool replicas_first_ = false;  // before parts of a context
  bool experts_apart_ = false;
};

// Ranks on nodes so that the memory of hosts is evenly used: early ranks of a
// pipeline keep activations longest and so have most of them on their host,
// late ones fewest. Each node gets as many of the first ranks that are left as
// of the last ones (PipeOffload, arXiv 2503.01328, appendix D: 16 ranks on two
// nodes as 0 to 3 with 12 to 15, and 4 to 11). More hops go between nodes.

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
