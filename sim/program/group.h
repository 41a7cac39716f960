// Who meets in a collective. Knows no operations and no times.
#pragma once

#include <cstdint>
#include <vector>

namespace pipewright {

// Members of a collective. Each member reaches it through a SideOp of its
// own rank that names the group; the n-th one of a rank belongs with the n-th
// ones of the others, whatever class their replicas are of.
struct Group {
  enum class Span : uint8_t {
    kReplicas,  // one rank, all data-parallel replicas
    kRanks,     // the ranks listed, each replica for itself
    kAll,       // the ranks listed, all replicas
  };
  Span span = Span::kReplicas;
  std::vector<int> ranks;
  // Size of the parts of those that span replicas: this many that stand next to
  // each other meet among themselves, or with `across` the n-th ones of all
  // such parts. 0: all meet. Divides the replicas.
  int part = 0;
  bool across = false;
  // True if all devices of a rank meet that hold the same part of its
  // parameters: those of context parallelism (Network::context_parallel) are
  // members, too.
  bool contexts = false;

  // Which of its instances a replica takes part in, how many there are, and
  // the replicas in each.
  int InstanceOf(int replica) const {
    if (span == Span::kRanks) return replica;
    if (part == 0) return 0;
    return across ? replica % part : replica / part;
  }
  int Instances(int replicas) const {
    if (span == Span::kRanks) return replicas;
    if (part == 0) return 1;
    return across ? part : replicas / part;
  }
  int ReplicasOf(int replicas) const { return replicas / Instances(replicas); }
  // The first replica of an instance.
  int FirstOf(int instance) const {
    return span == Span::kRanks || part == 0 || across ? instance
                                                       : instance * part;
  }
};

}  // namespace pipewright
