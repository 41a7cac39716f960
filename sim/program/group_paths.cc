#include "sim/program/group_paths.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "absl/types/span.h"
#include "sim/program/ring_traffic.h"
#include "sim/topology/mapping.h"

namespace pipewright {
namespace {

constexpr CommGroup kCommGroups[] = {CommGroup::kTensor, CommGroup::kContext,
                                     CommGroup::kExpert};

// Neither NVLink nor a card: an estimate does not know its rate.
bool IsBetween(const Link& link) {
  return link.kind == LinkKind::kFabric || link.kind == LinkKind::kHost;
}

struct Exchangers {
  std::vector<int> devices;
  // Ranks of replicas that wait for it: replica * pp + rank.
  std::vector<int> of_ranks;
};

using TakeGroup = std::function<void(Exchangers)>;

void ForEachTensor(const RankMapping& mapping, int contexts,
                   const TakeGroup& take) {
  const int tensor = mapping.devices_per_rank() / contexts;
  for (int at = 0; at < mapping.dp() * mapping.pp(); ++at) {
    for (int context = 0; context < contexts; ++context) {
      Exchangers group = {.of_ranks = {at}};
      for (int index = 0; index < tensor; ++index) {
        group.devices.push_back(mapping.DeviceOf(
            at / mapping.pp(), at % mapping.pp(), context * tensor + index));
      }
      take(std::move(group));
    }
  }
}

void ForEachContext(const RankMapping& mapping, int contexts,
                    const TakeGroup& take) {
  const int tensor = mapping.devices_per_rank() / contexts;
  for (int at = 0; at < mapping.dp() * mapping.pp(); ++at) {
    for (int index = 0; index < tensor; ++index) {
      Exchangers group = {.of_ranks = {at}};
      for (int context = 0; context < contexts; ++context) {
        group.devices.push_back(mapping.DeviceOf(
            at / mapping.pp(), at % mapping.pp(), context * tensor + index));
      }
      take(std::move(group));
    }
  }
}

void ForEachExpert(const RankMapping& mapping, int contexts, int members,
                   const TakeGroup& take) {
  const int tensor = mapping.devices_per_rank() / contexts;
  for (int replica = 0; replica < mapping.dp(); ++replica) {
    for (int context = 0; context < contexts; ++context) {
      const auto with =
          mapping.ExpertsWith(replica, context, contexts, members);
      if (with[0] != std::pair(replica, context)) continue;
      for (int rank = 0; rank < mapping.pp(); ++rank) {
        for (int index = 0; index < tensor; ++index) {
          Exchangers group;
          for (const auto& [other, part] : with) {
            group.devices.push_back(
                mapping.DeviceOf(other, rank, part * tensor + index));
            group.of_ranks.push_back(other * mapping.pp() + rank);
          }
          take(std::move(group));
        }
      }
    }
  }
}

bool IsOverNvlink(const Cluster& cluster, absl::Span<const LinkId> route) {
  return std::any_of(route.begin(), route.end(), [&](LinkId link) {
    return cluster.links()[link].kind == LinkKind::kNvlink;
  });
}

// Nothing but PCIe and memory of one host.
bool IsInHost(const Cluster& cluster, absl::Span<const LinkId> route) {
  return std::all_of(route.begin(), route.end(), [&](LinkId link) {
    return cluster.links()[link].kind == LinkKind::kHost;
  });
}

// Calls `take` with the groups of one kind; never if the run has none that are
// known.
void ForEachGroup(const Network& network, CommGroup kind, int members,
                  const TakeGroup& take) {
  const RankMapping& mapping = *network.mapping;
  const int contexts = network.context_parallel;
  if (members < 2) return;
  switch (kind) {
    case CommGroup::kTensor:
      if (members * contexts != mapping.devices_per_rank()) return;
      return ForEachTensor(mapping, contexts, take);
    case CommGroup::kContext:
      if (members != contexts) return;
      return ForEachContext(mapping, contexts, take);
    case CommGroup::kExpert:
      if (mapping.dp() * contexts % members != 0) return;
      return ForEachExpert(mapping, contexts, members, take);
  }
}

// Messages that a group sends at a time. Groups of experts have thousands: the
// links of all routes stand behind each other.
class Messages {
 public:
  int rings = 1;

  void Add(const Cluster& cluster, int from, int to) {
    cluster.AddRoute(from, to, &links_);
    ends_.push_back(links_.size());
  }
  size_t size() const { return ends_.size(); }
  absl::Span<const LinkId> operator[](size_t route) const {
    const size_t begin = route == 0 ? 0 : ends_[route - 1];
    return absl::MakeConstSpan(links_).subspan(begin, ends_[route] - begin);
  }
  // Links of all routes.
  const std::vector<LinkId>& links() const { return links_; }

 private:
  std::vector<LinkId> links_;
  std::vector<size_t> ends_;  // [route] in `links_`
};

Messages OnRings(const Cluster& cluster, const std::vector<int>& devices) {
  Messages messages;
  const std::vector<std::vector<int>> orders = Rings(cluster, devices);
  messages.rings = static_cast<int>(orders.size());
  for (const std::vector<int>& order : orders) {
    for (size_t at = 0; at < order.size(); ++at) {
      messages.Add(cluster, order[at], order[(at + 1) % order.size()]);
    }
  }
  return messages;
}

// Those inside a node only if `inside`, or if the node has no NVLink.
Messages ToAll(const Cluster& cluster, const std::vector<int>& devices,
               bool inside) {
  Messages messages;
  std::optional<bool> known_inside;
  if (inside) known_inside = true;
  for (const int from : devices) {
    for (const int to : devices) {
      if (from == to) continue;
      const bool same_node =
          cluster.devices()[from].node == cluster.devices()[to].node;
      if (same_node && !known_inside) {
        known_inside = !IsOverNvlink(cluster, cluster.Route(from, to));
      }
      if (same_node && !*known_inside) continue;
      messages.Add(cluster, from, to);
    }
  }
  return messages;
}

// The seconds that each byte of messages takes on the narrowest link between
// nodes: `flows` of all groups are on them at once.
double SecondsOfByte(const Cluster& cluster, const Messages& messages,
                     const std::vector<double>& flows) {
  double byte_s = 0;
  for (const LinkId link : messages.links()) {
    if (!IsBetween(cluster.links()[link])) continue;
    byte_s = std::max(byte_s, flows[link] / cluster.links()[link].bytes_per_s);
  }
  return byte_s / messages.rings;
}

// Latencies that estimates do not know: of links between nodes, or what all
// links of `cluster` have more than those of `healthy`. NCCL's own times have
// that of PCIe inside a node.
double LatencyBeyond(const Cluster& cluster, const Cluster* healthy,
                     absl::Span<const LinkId> route) {
  double latency_s = 0;
  if (healthy == nullptr && IsInHost(cluster, route)) return 0;
  for (const LinkId link : route) {
    const Link& own = cluster.links()[link];
    if (healthy != nullptr) {
      latency_s += own.latency_s - healthy->links()[link].latency_s;
    } else if (IsBetween(own)) {
      latency_s += own.latency_s;
    }
  }
  return latency_s;
}

// Once round takes all steps but one. The slowest ring.
double RingLatency(const Cluster& cluster, const Cluster* healthy,
                   const Messages& messages) {
  double most_s = 0;
  const size_t members = messages.size() / messages.rings;
  for (size_t first = 0; first < messages.size(); first += members) {
    double sum_s = 0;
    double least_s = 0;
    for (size_t edge = 0; edge < members; ++edge) {
      const double own_s =
          LatencyBeyond(cluster, healthy, messages[first + edge]);
      sum_s += own_s;
      least_s = edge == 0 ? own_s : std::min(least_s, own_s);
    }
    most_s = std::max(most_s, sum_s - least_s);
  }
  return most_s;
}

double LongestLatency(const Cluster& cluster, const Cluster* healthy,
                      const Messages& messages) {
  double most_s = 0;
  for (size_t route = 0; route < messages.size(); ++route) {
    most_s = std::max(most_s, LatencyBeyond(cluster, healthy, messages[route]));
  }
  return most_s;
}

bool HasRings(CommGroup kind) { return kind != CommGroup::kExpert; }
// Contexts may exchange either way.
bool HasPairs(CommGroup kind) { return kind != CommGroup::kTensor; }

// What all groups of a kind put on each link at once.
struct FlowsOfKind {
  std::vector<double> ring;
  std::vector<double> pair;
};

void Count(const Messages& messages, std::vector<double>* flows) {
  for (const LinkId link : messages.links()) ++(*flows)[link];
}

FlowsOfKind FlowsOfAll(const Network& network, CommGroup kind, int members) {
  const Cluster& cluster = *network.cluster;
  FlowsOfKind flows = {std::vector<double>(cluster.links().size()),
                       std::vector<double>(cluster.links().size())};
  ForEachGroup(network, kind, members, [&](const Exchangers& group) {
    if (HasRings(kind)) Count(OnRings(cluster, group.devices), &flows.ring);
    if (HasPairs(kind)) {
      Count(ToAll(cluster, group.devices, false), &flows.pair);
    }
  });
  return flows;
}

void TakeLonger(const BetweenNodes& own, BetweenNodes* most) {
  most->ring_s = std::max(most->ring_s, own.ring_s);
  most->pair_s = std::max(most->pair_s, own.pair_s);
  most->ring_latency_s = std::max(most->ring_latency_s, own.ring_latency_s);
  most->latency_s = std::max(most->latency_s, own.latency_s);
}

BetweenNodes BetweenOf(const Cluster& cluster, CommGroup kind,
                       const FlowsOfKind& flows, const Exchangers& group) {
  BetweenNodes own;
  if (HasRings(kind)) {
    const Messages messages = OnRings(cluster, group.devices);
    own.ring_s = SecondsOfByte(cluster, messages, flows.ring);
    own.ring_latency_s = RingLatency(cluster, nullptr, messages);
    own.latency_s = LongestLatency(cluster, nullptr, messages);
  }
  if (HasPairs(kind)) {
    const Messages messages = ToAll(cluster, group.devices, false);
    own.pair_s = SecondsOfByte(cluster, messages, flows.pair);
    own.latency_s =
        std::max(own.latency_s, LongestLatency(cluster, nullptr, messages));
  }
  return own;
}

// The slowest link of `kind` that messages cross.
double SlowestLink(const Cluster& cluster, const Cluster& healthy,
                   LinkKind kind, const Messages& messages, double slowest) {
  for (const LinkId link : messages.links()) {
    const Link& own = cluster.links()[link];
    if (own.kind != kind) continue;
    slowest =
        std::max(slowest, healthy.links()[link].bytes_per_s / own.bytes_per_s);
  }
  return slowest;
}

double Ratio(double slowed_s, double healthy_s) {
  return healthy_s > 0 ? slowed_s / healthy_s : 1;
}

SlowPath SlowPathOf(const Cluster& cluster, const Cluster& healthy,
                    CommGroup kind, const FlowsOfKind& flows,
                    const Exchangers& group) {
  SlowPath path;
  // Links that are faster than they should be speed a group up only together.
  path.nvlink = path.card = 0;
  const auto take = [&](const Messages& messages) {
    path.nvlink =
        SlowestLink(cluster, healthy, LinkKind::kNvlink, messages, path.nvlink);
    path.card =
        SlowestLink(cluster, healthy, LinkKind::kCard, messages, path.card);
    path.latency_s =
        std::max(path.latency_s, LongestLatency(cluster, &healthy, messages));
  };
  if (HasRings(kind)) {
    const Messages messages = OnRings(cluster, group.devices);
    take(messages);
    path.ring_latency_s = RingLatency(cluster, &healthy, messages);
    path.ring = Ratio(SecondsOfByte(cluster, messages, flows.ring),
                      SecondsOfByte(healthy, messages, flows.ring));
  }
  if (HasPairs(kind)) {
    const Messages messages = ToAll(cluster, group.devices, true);
    take(messages);
    path.pair = Ratio(SecondsOfByte(cluster, messages, flows.pair),
                      SecondsOfByte(healthy, messages, flows.pair));
  }
  if (path.nvlink == 0) path.nvlink = 1;
  if (path.card == 0) path.card = 1;
  return path;
}

void TakeSlower(const SlowPath& own, SlowPath* most) {
  most->nvlink = std::max(most->nvlink, own.nvlink);
  most->card = std::max(most->card, own.card);
  most->ring = std::max(most->ring, own.ring);
  most->pair = std::max(most->pair, own.pair);
  most->ring_latency_s = std::max(most->ring_latency_s, own.ring_latency_s);
  most->latency_s = std::max(most->latency_s, own.latency_s);
}

}  // namespace

std::array<BetweenNodes, 3> PathsBetweenNodes(const Network& network,
                                              const GroupMembersOf& members) {
  std::array<BetweenNodes, 3> paths = {};
  const Cluster& cluster = *network.cluster;
  if (!std::any_of(cluster.links().begin(), cluster.links().end(), IsBetween)) {
    return paths;
  }
  for (const CommGroup kind : kCommGroups) {
    const int index = static_cast<int>(kind);
    if (members[index] < 2) continue;
    const FlowsOfKind flows = FlowsOfAll(network, kind, members[index]);
    const auto is_used = [&](const std::vector<double>& on) {
      for (size_t link = 0; link < on.size(); ++link) {
        if (on[link] > 0 && IsBetween(cluster.links()[link])) return true;
      }
      return false;
    };
    if (!is_used(flows.ring) && !is_used(flows.pair)) continue;
    ForEachGroup(network, kind, members[index], [&](const Exchangers& group) {
      TakeLonger(BetweenOf(cluster, kind, flows, group), &paths[index]);
    });
  }
  return paths;
}

std::vector<bool> LinksOfGroups(const Network& network,
                                const GroupMembersOf& members) {
  const Cluster& cluster = *network.cluster;
  std::vector<bool> crossed(cluster.links().size(), false);
  const auto take = [&](const Messages& messages) {
    for (const LinkId link : messages.links()) crossed[link] = true;
  };
  for (const CommGroup kind : kCommGroups) {
    ForEachGroup(network, kind, members[static_cast<int>(kind)],
                 [&](const Exchangers& group) {
                   if (HasRings(kind)) take(OnRings(cluster, group.devices));
                   if (HasPairs(kind)) {
                     take(ToAll(cluster, group.devices, true));
                   }
                 });
  }
  return crossed;
}

std::vector<SlowPaths> SlowPathsOf(const Network& network,
                                   const Cluster& healthy,
                                   const GroupMembersOf& members) {
  std::vector<SlowPaths> paths;
  const Cluster& cluster = *network.cluster;
  bool any = false;
  for (const CommGroup kind : kCommGroups) {
    const int index = static_cast<int>(kind);
    if (members[index] < 2) continue;
    const FlowsOfKind flows = FlowsOfAll(network, kind, members[index]);
    std::vector<bool> seen;
    ForEachGroup(network, kind, members[index], [&](const Exchangers& group) {
      const SlowPath own = SlowPathOf(cluster, healthy, kind, flows, group);
      any = any || own != SlowPath();
      const size_t ranks =
          static_cast<size_t>(network.mapping->dp()) * network.mapping->pp();
      paths.resize(ranks);
      seen.resize(ranks);
      for (const int rank : group.of_ranks) {
        if (seen[rank]) {
          TakeSlower(own, &paths[rank][index]);
        } else {
          paths[rank][index] = own;
          seen[rank] = true;
        }
      }
    });
  }
  if (!any) paths.clear();
  return paths;
}

void MakeReplicasAlike(int pp, std::vector<SlowPaths>* paths) {
  std::vector<SlowPaths> slowest(paths->begin(), paths->begin() + pp);
  for (size_t at = pp; at < paths->size(); ++at) {
    for (size_t kind = 0; kind < slowest[at % pp].size(); ++kind) {
      TakeSlower((*paths)[at][kind], &slowest[at % pp][kind]);
    }
  }
  for (size_t at = 0; at < paths->size(); ++at) (*paths)[at] = slowest[at % pp];
}

}  // namespace pipewright
