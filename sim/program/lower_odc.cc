// ODC (arXiv 2601.19362; its repository sail-sg/odc): whom a device pulls from
// and pushes to, in which order, and the two points of an iteration where all
// replicas meet. When they pull and push is lower_layers.cc's.
#include <algorithm>
#include <numeric>
#include <utility>

#include "sim/program/lowering.h"
#include "sim/program/program.h"
#include "sim/topology/mapping.h"

namespace pipewright {

// Replicas that stand next to each other on one node, as many on each; without
// a network all are on one.
int LayerShards::NodeSizeOf(int rank) const {
  const Network& network = options_.network;
  if (network.cluster == nullptr) return options_.replicas;
  const auto node = [&](int replica) {
    return network.cluster->devices()[network.mapping->DeviceOf(replica, rank)]
        .node;
  };
  for (int size = options_.replicas; size > 1; --size) {
    if (options_.replicas % size != 0) continue;
    bool together = true;
    for (int replica = 0; replica < options_.replicas; ++replica) {
      together &= node(replica) == node(replica / size * size);
    }
    if (together) return size;
  }
  return 1;
}

// The order of the repository (gather.py, scatter_accumulate.py): own node
// first, place after place from the own one; then node after node, from all
// devices of a node at once. A push serves the own node at once.
std::shared_ptr<const PeerPlan> LayerShards::PeersOf(int rank, int over,
                                                     bool push) const {
  auto plan = std::make_shared<PeerPlan>();
  const bool apart = options_.layers.pulls_apart;
  const int node = std::min(NodeSizeOf(rank), over);
  // Parts of a node, or nodes: those of a part stand next to each other.
  plan->node_size = over < options_.replicas && over % node != 0 ? over : node;
  const int size = plan->node_size;
  plan->nodes = over / size;
  std::vector<PeerPlan::Peer> near;
  for (int place = 1; place < size; ++place) near.push_back({0, place});
  if (apart && !push) {
    for (const PeerPlan::Peer& peer : near) {
      plan->steps.push_back({.peers = {peer}, .apart = true});
    }
  } else if (!near.empty()) {
    plan->steps.push_back({.peers = near, .apart = apart});
  }
  std::vector<PeerPlan::Peer> far;
  for (int other = 1; other < over / size; ++other) {
    if (apart) far.clear();
    for (int place = 0; place < size; ++place) far.push_back({other, place});
    if (apart) plan->steps.push_back({.peers = far, .apart = true});
  }
  if (!apart && !far.empty()) plan->steps.push_back({.peers = std::move(far)});
  return plan;
}

// Hpz: once a minibatch every layer is gathered over all owners, and each part
// keeps a copy that later gathers pull from.
void LayerShards::AddOdcBegin(int rank) {
  const int near = options_.layers.near_group;
  if (near == 0 || near >= ShardedOver()) return;
  const auto group = [&](int part) {
    const int added = AddGroup(Group::Span::kReplicas, {rank});
    program_.groups[added].part = part == options_.replicas ? 0 : part;
    return added;
  };
  const int all = group(ShardedOver());
  const int part = group(near);
  const auto layers = static_cast<int>(program_.ranks[rank].layers.size());
  for (int chunk = 0; chunk < layers; ++chunk) {
    SideOp op = LayerOp(rank, OpKind::kAllGather, chunk, all);
    op.bytes =
        BytesOf(options_.parameter_bytes, &LayerShare::stored, rank, chunk);
    Attach(rank, 0, std::move(op));
  }
  Attach(
      rank, 0,
      {.kind = OpKind::kBarrier, .stream = Stream::kCollective, .group = part});
}

// Owners have added what all clients pushed; of HSDP the parts, and with them
// the parts of a context, sum what their owners have.
void LayerShards::AddOdcDrain(int rank, RankEvents* events) {
  const int64_t end = OrderSize(rank);
  Attach(rank, end, {.kind = OpKind::kBarrier, .group = groups_[rank].all});
  const int across = groups_[rank].across;
  if (across < 0) return;
  for (int chunk = 0; chunk < schedule_.vpp(); ++chunk) {
    const int stage = schedule_.placement.StageOf(rank, chunk, 0);
    const int32_t event = AddEvent(rank);
    (*events)[rank].push_back(event);
    Attach(rank, end,
           {.kind = OpKind::kAllReduce,
            .stream = Stream::kCollective,
            .bytes = options_.gradient_bytes[stage] / ShardedOver(),
            .group = across,
            .chunk = chunk,
            .stage = stage,
            .outputs = {event}});
  }
}

void LayerShards::AddEnd() {
  std::vector<int> everybody(schedule_.pp());
  std::iota(everybody.begin(), everybody.end(), 0);
  const int group = AddGroup(Group::Span::kAll, everybody);
  for (int rank = 0; rank < schedule_.pp(); ++rank) {
    Attach(rank, OrderSize(rank), {.kind = OpKind::kBarrier, .group = group});
  }
}

}  // namespace pipewright
