// Gathers from very many devices at once: what of them is spread, what it does
// to others, and what that costs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "sim/engine/fluid_links.h"
#include "sim/engine/spread.h"
#include "tests/support/lowering.h"
#include "tests/support/odc_nodes.h"

namespace pipewright::fluid_pools_test {
namespace {

using testing::Nodes;

constexpr double kNotYet = std::numeric_limits<double>::infinity();

// Every device pulls from all that are not on its node (source: its number),
// and pushes to them (source: its number and that of all devices).
struct PullsAndPushes {
  explicit PullsAndPushes(const Nodes& nodes)
      : network(nodes.Build()), planner(*network.cluster, kSpreadPeers) {
    for (const bool pulls : {true, false}) {
      for (int device = 0; device < nodes.devices; ++device) {
        std::vector<std::pair<int, int>> pairs;
        for (int other = 0; other < nodes.devices; ++other) {
          if (other / nodes.of_node == device / nodes.of_node) continue;
          pairs.emplace_back(pulls ? other : device, pulls ? device : other);
        }
        sources.push_back(
            planner.Add({.pulls = pulls, .peers = pairs.size()}, pairs));
      }
    }
    pools = planner.Finish();
    std::vector<LinkId> pooled;
    for (const SpreadPool& pool : pools) {
      for (const SpreadLoad& load : pool.loads) pooled.push_back(load.link);
    }
    plans = PlanSharing(*network.cluster, sources, pooled);
  }
  FluidLinks Links() const { return {*network.cluster, plans, pools}; }

  Network network;
  SpreadPlanner planner;
  std::vector<TrafficSource> sources;
  std::vector<SpreadPool> pools;
  std::vector<SourcePlan> plans;
};

TEST_CASE("spread: a source keeps its own card, a pool has the rest",
          "[engine]") {
  const Nodes nodes = {64, 8};
  const PullsAndPushes made(nodes);
  // 56 devices send a flow each to the one that pulls.
  CHECK(made.sources[3].flows.loads ==
        std::vector<LinkLoad>{{nodes.In(3), 56}});
  CHECK(made.sources[64 + 3].flows.loads ==
        std::vector<LinkLoad>{{nodes.Out(3), 56}});
  CHECK(made.plans[3].bytes_per_s == Approx(1.0 / 56));
  REQUIRE(made.pools.size() == 2);
  const SpreadPool& pulls = made.pools[0];
  CHECK(pulls.sources == 64);
  CHECK(pulls.bytes_per_s == Approx(1.0 / 56));
  REQUIRE(pulls.loads.size() == 64);
  for (const SpreadLoad& load : pulls.loads) {
    CHECK((load.link >= nodes.Out(0) && load.link <= nodes.Out(63)));
    CHECK(load.flows == Approx(56.0 / 64));  // 56 of 64 devices pull from it
  }
  REQUIRE(pulls.parts.size() == 8);  // nodes
  for (const double part : pulls.parts) CHECK(part == Approx(1.0 / 8));
}

// When what has been started at 0 ends, by transfer.
std::vector<double> EndsOf(FluidLinks& links, size_t transfers) {
  std::vector<double> ends_s(transfers, kNotYet);
  double now_s = 0;
  while ((now_s = links.NextEnd(now_s)) < kNotYet) {
    uint32_t transfer = 0;
    while (links.TakeEnded(now_s, &transfer)) ends_s[transfer] = now_s;
  }
  return ends_s;
}

TEST_CASE("spread: pulls and a push slow each other", "[engine]") {
  const Nodes nodes = {64, 8};
  const PullsAndPushes made(nodes);
  // Alone, and with pulls that no push meets: 1 byte of each flow in 56 s.
  for (const int pulls : {1, 64}) {
    FluidLinks links = made.Links();
    for (int device = 0; device < pulls; ++device) {
      links.Start(0, device, 1, device);
    }
    for (const double end_s : EndsOf(links, pulls)) CHECK(end_s == Approx(56));
  }
  // 32 pull, and the first device pushes as much: its card has to send 1 byte
  // to each of 56, and half of that to those that pull.
  FluidLinks links = made.Links();
  for (int device = 0; device < 32; ++device) {
    links.Start(0, 8 + device, 1, device);
  }
  links.Start(0, 64, 1, 32);
  const std::vector<double> ends_s = EndsOf(links, 33);
  CHECK(ends_s[32] > 1.3 * 56);
  CHECK(ends_s[32] < 1.6 * 56);
  // An eighth of a pull is from the node of that card, and takes 1.5 to 2.5
  // times as long; the push meets nobody else.
  for (int device = 0; device < 32; ++device) {
    INFO("device " << device);
    CHECK(ends_s[device] > (1 + 0.5 / 8) * 56);
    CHECK(ends_s[device] < (1 + 1.5 / 8) * 56);
  }
}

// Visits for a flow of devices that pull and push in turn with pauses of any
// length.
double VisitsOfFlow(int devices) {
  const PullsAndPushes made({devices, 8});
  FluidLinks links = made.Links();
  std::mt19937 random(1);
  std::exponential_distribution<double> pause_s(1.0);
  using Begin = std::pair<double, int>;
  std::priority_queue<Begin, std::vector<Begin>, std::greater<>> begins;
  for (int device = 0; device < devices; ++device) {
    begins.push({pause_s(random), device});
  }
  std::vector<int> rounds(devices, 0);
  constexpr int kRounds = 12;
  int64_t flows = 0;
  double now_s = 0;
  while (true) {
    const double end_s = links.NextEnd(now_s);
    if (!begins.empty() && begins.top().first <= end_s) {
      const auto [begin_s, device] = begins.top();
      begins.pop();
      now_s = begin_s;
      const int source = rounds[device] % 3 == 2 ? devices + device : device;
      // Alone it takes a second.
      links.Start(now_s, source, made.plans[source].bytes_per_s, device);
      ++flows;
      continue;
    }
    if (end_s == kNotYet) break;
    now_s = end_s;
    uint32_t transfer = 0;
    while (links.TakeEnded(now_s, &transfer)) {
      const auto device = static_cast<int>(transfer);
      if (++rounds[device] < kRounds) {
        begins.push({now_s + pause_s(random), device});
      }
    }
  }
  CHECK(flows == static_cast<int64_t>(devices) * kRounds);
  return static_cast<double>(links.visits()) / static_cast<double>(flows);
}

// Shared exactly, each of 1,024 would be looked at again and again.
TEST_CASE("spread: work is linear in devices", "[engine]") {
  const double few = VisitsOfFlow(64);
  const double many = VisitsOfFlow(1024);
  INFO("visits of a flow: " << few << " of 64 devices, " << many << " of 1024");
  CHECK(many < 1.5 * few);
  CHECK(many < 400);
}

}  // namespace
}  // namespace pipewright::fluid_pools_test
