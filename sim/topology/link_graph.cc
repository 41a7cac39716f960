#include "sim/topology/link_graph.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sim/base/check.h"

namespace pipewright {
namespace {

// Sets of ends of links, joined as routes show that they are one place.
class Places {
 public:
  explicit Places(int count) : parent_(count) {
    std::iota(parent_.begin(), parent_.end(), 0);
  }
  int Find(int place) {
    while (parent_[place] != place) {
      parent_[place] = parent_[parent_[place]];
      place = parent_[place];
    }
    return place;
  }
  // The smaller number stands for both, so that nodes keep theirs.
  void Join(int one, int other) {
    one = Find(one);
    other = Find(other);
    parent_[std::max(one, other)] = std::min(one, other);
  }

 private:
  std::vector<int> parent_;
};

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Calls `visit` with both ways of each cable that is used.
template <typename Visit>
void JoinCables(const Cluster& cluster, const std::vector<bool>& used,
                const Visit& visit) {
  std::map<std::string, LinkId> ups;
  for (size_t link = 0; link < used.size(); ++link) {
    absl::string_view name = cluster.links()[link].name;
    if (used[link] && absl::ConsumeSuffix(&name, "/up")) {
      ups[std::string(name)] = static_cast<LinkId>(link);
    }
  }
  for (size_t link = 0; link < used.size(); ++link) {
    absl::string_view name = cluster.links()[link].name;
    if (!used[link] || !absl::ConsumeSuffix(&name, "/down")) continue;
    const auto up = ups.find(std::string(name));
    if (up != ups.end()) visit(up->second, static_cast<LinkId>(link));
  }
}

}  // namespace

LinkGraph GraphOf(const Cluster& cluster) {
  LinkGraph graph;
  for (const Device& device : cluster.devices()) {
    graph.nodes = std::max(graph.nodes, device.node + 1);
  }
  const int links = static_cast<int>(cluster.links().size());
  Places places(graph.nodes + 2 * links);
  const auto tail = [&](LinkId link) { return graph.nodes + 2 * link; };
  const auto head = [&](LinkId link) { return graph.nodes + 2 * link + 1; };
  std::vector<bool> used(links, false);
  for (int from = 0; from < cluster.num_devices(); ++from) {
    for (int to = 0; to < cluster.num_devices(); ++to) {
      const int from_node = cluster.devices()[from].node;
      const int to_node = cluster.devices()[to].node;
      if (from_node == to_node) continue;
      const std::vector<LinkId> route = cluster.Route(from, to);
      PW_CHECK(!route.empty());
      places.Join(from_node, tail(route.front()));
      places.Join(to_node, head(route.back()));
      for (size_t hop = 0; hop < route.size(); ++hop) {
        used[route[hop]] = true;
        if (hop > 0) places.Join(head(route[hop - 1]), tail(route[hop]));
      }
    }
  }
  JoinCables(cluster, used, [&](LinkId up, LinkId down) {
    places.Join(head(up), tail(down));
    places.Join(tail(up), head(down));
  });
  // A place that only one node can reach is inside of it: an NVSwitch on the
  // way to another rail.
  std::map<int, std::set<int>> beside;
  for (LinkId link = 0; link < links; ++link) {
    if (!used[link]) continue;
    const int from = places.Find(tail(link));
    const int to = places.Find(head(link));
    beside[from].insert(to);
    beside[to].insert(from);
  }
  for (const auto& [place, others] : beside) {
    if (place < graph.nodes || others.size() != 1) continue;
    if (*others.begin() < graph.nodes) places.Join(place, *others.begin());
  }
  std::map<int, int> vertex_of;
  graph.vertices = graph.nodes;
  const auto vertex = [&](int place) {
    const int root = places.Find(place);
    if (root < graph.nodes) return root;
    const auto [found, is_new] = vertex_of.emplace(root, graph.vertices);
    graph.vertices += is_new ? 1 : 0;
    return found->second;
  };
  for (LinkId link = 0; link < links; ++link) {
    if (!used[link]) continue;
    const int from = vertex(tail(link));
    const int to = vertex(head(link));
    // Inside of a node: NVLink on the way to another rail.
    if (from != to) graph.edges.push_back({link, from, to});
  }
  return graph;
}

std::vector<int> LinkGraph::Heights() const {
  std::vector<std::vector<int>> next(vertices);
  for (const Edge& edge : edges) {
    next[edge.from].push_back(edge.to);
    next[edge.to].push_back(edge.from);
  }
  std::vector<int> heights(vertices, -1);
  std::queue<int> waiting;
  for (int node = 0; node < nodes; ++node) {
    heights[node] = 0;
    waiting.push(node);
  }
  while (!waiting.empty()) {
    const int at = waiting.front();
    waiting.pop();
    for (const int other : next[at]) {
      if (heights[other] >= 0) continue;
      heights[other] = heights[at] + 1;
      waiting.push(other);
    }
  }
  return heights;
}

double CutBandwidth(const Cluster& cluster, const LinkGraph& graph,
                    const std::vector<bool>& side) {
  PW_CHECK(static_cast<int>(side.size()) == graph.nodes);
  const int source = graph.vertices;
  const int sink = source + 1;
  // What is left of each edge, and of its way back.
  std::vector<std::map<int, double>> left(sink + 1);
  for (const LinkGraph::Edge& edge : graph.edges) {
    left[edge.from][edge.to] += cluster.links()[edge.link].bytes_per_s;
    left[edge.to].emplace(edge.from, 0.0);
  }
  for (int node = 0; node < graph.nodes; ++node) {
    if (side[node]) {
      left[source][node] = kNoLimit;
    } else {
      left[node][sink] = kNoLimit;
    }
  }
  double total = 0;
  while (true) {
    std::vector<int> before(sink + 1, -1);
    std::queue<int> waiting;
    waiting.push(source);
    before[source] = source;
    while (!waiting.empty() && before[sink] < 0) {
      const int at = waiting.front();
      waiting.pop();
      for (const auto& [other, room] : left[at]) {
        // What rounding leaves of a full edge is no way.
        if (before[other] >= 0 || room <= 1e-9 * total) continue;
        before[other] = at;
        waiting.push(other);
      }
    }
    if (before[sink] < 0) return total;
    double room = kNoLimit;
    for (int at = sink; at != source; at = before[at]) {
      room = std::min(room, left[before[at]][at]);
    }
    for (int at = sink; at != source; at = before[at]) {
      left[before[at]][at] -= room;
      left[at][before[at]] += room;
    }
    total += room;
  }
}

}  // namespace pipewright
