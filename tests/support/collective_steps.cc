#include "tests/support/collective_steps.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/program/collective_phases.h"

namespace pipewright {

void TreeByHalves(int low, int high, int parent, std::vector<int>* parents) {
  if (low > high) return;
  int size = 1;
  while (2 * size <= high - low + 1) size *= 2;
  const int root = low + size - 1;
  (*parents)[root - 1] = parent;
  TreeByHalves(low, root - 1, root, parents);
  TreeByHalves(root + 1, high, root, parents);
}

int CollectiveSteps::Add(int edge, int from, int to, double bytes,
                         std::vector<int> after) {
  const std::vector<LinkId> route = cluster_.Route(from, to);
  const auto last = last_.find({edge, from, to});
  if (last != last_.end()) after.push_back(last->second);
  const double wait_s = after.empty() ? start_s_ : 0;
  steps_.push_back({.links = route,
                    .bytes = bytes,
                    .latency_s = wait_s + cluster_.Bundle({route}).latency_s,
                    .after = std::move(after)});
  return last_[{edge, from, to}] = static_cast<int>(steps_.size()) - 1;
}

void CollectiveSteps::AddTree(const Nodes& nodes, size_t head, bool second,
                              int chunks, double chunk) {
  const auto count = static_cast<int>(nodes.size());
  // [place] the devices there from the head on.
  std::vector<std::vector<int>> chain(count + 1);
  for (int node = 1; node <= count; ++node) {
    std::vector<int> devices = nodes[node - 1];
    std::rotate(devices.begin(),
                devices.begin() + static_cast<int>(head % devices.size()),
                devices.end());
    chain[second ? PlaceInSecondTree(node, count) : node] = devices;
  }
  std::vector<int> parents(count);
  TreeByHalves(1, count, 0, &parents);
  std::vector<std::vector<int>> children(count + 1);
  for (int place = 1; place <= count; ++place) {
    children[parents[place - 1]].push_back(place);
  }
  std::vector<int> down_from_root = children[0];
  for (size_t next = 0; next < down_from_root.size(); ++next) {
    for (const int child : children[down_from_root[next]]) {
      down_from_root.push_back(child);
    }
  }
  const int root = down_from_root[0];
  const int edge = edges_;
  edges_ += 4;
  for (int part = 0; part < chunks; ++part) {
    std::vector<std::vector<int>> has(count + 1);  // [place] waits for
    for (int place = 1; place <= count; ++place) {
      const std::vector<int>& own = chain[place];
      for (size_t at = own.size() - 1; at > 0; --at) {
        has[place] = {Add(edge, own[at], own[at - 1], chunk, has[place])};
      }
    }
    for (auto place = down_from_root.rbegin(); place != down_from_root.rend();
         ++place) {
      if (*place == root) continue;
      const int parent = parents[*place - 1];
      has[parent].push_back(Add(edge + 1, chain[*place][0], chain[parent][0],
                                chunk, has[*place]));
    }
    std::vector<std::vector<int>> got(count + 1);
    got[root] = has[root];
    for (const int place : down_from_root) {
      for (const int child : children[place]) {
        got[child] = {
            Add(edge + 2, chain[place][0], chain[child][0], chunk, got[place])};
      }
      const std::vector<int>& own = chain[place];
      std::vector<int> before = got[place];
      for (size_t at = 0; at + 1 < own.size(); ++at) {
        before = {Add(edge + 3, own[at], own[at + 1], chunk, before)};
      }
    }
  }
}

void CollectiveSteps::AddTrees(const Nodes& nodes, double bytes,
                               double start_s) {
  start_s_ = start_s;
  size_t heads = nodes[0].size();
  for (const std::vector<int>& devices : nodes) {
    heads = std::min(heads, devices.size());
  }
  const double part = bytes / 2 / static_cast<double>(heads);
  const auto chunks = static_cast<int>(std::ceil(part / 524288));
  for (size_t head = 0; head < heads; ++head) {
    for (const bool second : {false, true}) {
      AddTree(nodes, head, second, chunks, part / chunks);
    }
  }
}

// Steps of rings of equal length, `count` times around. `before` and the
// result: what the next step of a device waits for.
CollectiveSteps::Waits CollectiveSteps::AddRings(const Nodes& rings, int count,
                                                 double bytes, Waits before) {
  const int edge = edges_++;
  for (int step = 0; step < count; ++step) {
    Waits after;
    for (const std::vector<int>& ring : rings) {
      for (size_t at = 0; at < ring.size(); ++at) {
        const int to = ring[(at + 1) % ring.size()];
        after[to].push_back(Add(edge, ring[at], to, bytes, before[ring[at]]));
      }
    }
    before = std::move(after);
  }
  return before;
}

void CollectiveSteps::AddHierarchy(const Nodes& nodes, double bytes,
                                   double start_s) {
  start_s_ = start_s;
  const auto count = static_cast<int>(nodes.size());
  const auto devices = static_cast<int>(nodes[0].size());
  Nodes between(devices);
  for (const std::vector<int>& node : nodes) {
    for (int place = 0; place < devices; ++place) {
      between[place].push_back(node[place]);
    }
  }
  const double part = bytes / devices;
  Waits state = AddRings(nodes, devices - 1, part, {});
  state = AddRings(between, 2 * (count - 1), part / count, std::move(state));
  AddRings(nodes, devices - 1, part, std::move(state));
}

}  // namespace pipewright
