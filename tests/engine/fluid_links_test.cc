#include "sim/engine/fluid_links.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <functional>
#include <limits>
#include <map>
#include <queue>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/lowering.h"

namespace pipewright::fluid_links_test {
namespace {

// Some bundles over some links, all of them flows.
std::vector<SourcePlan> Flows(const Cluster& cluster,
                              const std::vector<std::vector<LinkLoad>>& loads) {
  std::vector<SourcePlan> plans;
  for (const std::vector<LinkLoad>& each : loads) {
    plans.push_back({.sharing = Sharing::kFlow,
                     .bytes_per_s = cluster.RateOf(each),
                     .shared = each});
  }
  return plans;
}

TEST_CASE("fluid: alone, together, and alone again", "[engine]") {
  const auto cluster = ClusterOf(1, {{.bytes_per_s = 8}}, {});
  const auto plans = Flows(*cluster, {{{0, 1}}, {{0, 3}}});
  FluidLinks links(*cluster, plans);
  CHECK(links.NextEnd(0) == std::numeric_limits<double>::infinity());
  links.Start(0, 0, 32, 10);
  CHECK(links.NextEnd(0) == 4);
  // From 1 on each of four flows has 2 B/s.
  links.Start(1, 1, 8, 11);
  CHECK(links.NextEnd(1) == 5);
  uint32_t transfer = 0;
  CHECK_FALSE(links.TakeEnded(4, &transfer));
  REQUIRE(links.TakeEnded(5, &transfer));
  CHECK(transfer == 11);
  CHECK_FALSE(links.TakeEnded(5, &transfer));
  // 8 B by 1, 8 more by 5.
  CHECK(links.NextEnd(5) == 7);
  REQUIRE(links.TakeEnded(7, &transfer));
  CHECK(transfer == 10);
  CHECK(links.NextEnd(7) == std::numeric_limits<double>::infinity());
}

// Progressive filling from scratch, flow by flow.
std::map<uint32_t, double> NaiveRates(
    const Cluster& cluster, const std::vector<SourcePlan>& plans,
    const std::map<uint32_t, std::pair<int, double>>& running) {
  std::map<uint32_t, double> rates;
  std::map<LinkId, double> taken;
  while (rates.size() < running.size()) {
    std::map<LinkId, double> waiting;
    for (const auto& [transfer, flow] : running) {
      if (rates.count(transfer) > 0) continue;
      for (const LinkLoad& load : plans[flow.first].shared) {
        waiting[load.link] += load.flows;
      }
    }
    double share = std::numeric_limits<double>::infinity();
    LinkId narrowest = -1;
    uint32_t capped = 0;
    for (const auto& [transfer, flow] : running) {
      if (rates.count(transfer) > 0) continue;
      if (plans[flow.first].bytes_per_s >= share) continue;
      share = plans[flow.first].bytes_per_s;
      capped = transfer;
    }
    for (const auto& [link, flows] : waiting) {
      const double own =
          (cluster.links()[link].bytes_per_s - taken[link]) / flows;
      if (own < share) {
        share = own;
        narrowest = link;
      }
    }
    for (const auto& [transfer, flow] : running) {
      const std::vector<LinkLoad>& loads = plans[flow.first].shared;
      const bool first = narrowest < 0
                             ? transfer == capped
                             : std::any_of(loads.begin(), loads.end(),
                                           [&](const LinkLoad& load) {
                                             return load.link == narrowest;
                                           });
      if (rates.count(transfer) > 0 || !first) continue;
      rates[transfer] = share;
      for (const LinkLoad& load : loads) taken[load.link] += load.flows * share;
    }
  }
  return rates;
}

TEST_CASE("fluid: what comes and goes, against filling from scratch",
          "[engine]") {
  int ended = 0;
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](int most) {
      return static_cast<int>(random() % most);
    };
    std::vector<Link> given;
    for (int link = 2 + below(8); link > 0; --link) {
      given.push_back({.bytes_per_s = 1.0 + below(seed % 2 == 0 ? 2 : 100)});
    }
    const auto cluster = ClusterOf(1, given, {});
    std::vector<std::vector<LinkLoad>> loads;
    for (int source = 1 + below(12); source > 0; --source) {
      std::vector<LinkLoad>& own = loads.emplace_back();
      const int first = below(static_cast<int>(given.size()));
      const int count = 1 + below(static_cast<int>(given.size()) - first);
      for (int link = 0; link < count; ++link) {
        // Work of a host takes any number of bytes of the link, not so many
        // whole flows.
        const double part = seed % 3 == 0 ? below(100) / 32.0 : 0;
        own.push_back({first + link, 1 + below(4) + part});
      }
    }
    std::vector<SourcePlan> plans = Flows(*cluster, loads);
    for (SourcePlan& plan : plans) {
      if (seed % 4 == 0) plan.bytes_per_s /= 1 + below(3);
    }
    FluidLinks links(*cluster, plans);
    std::map<uint32_t, std::pair<int, double>> running;  // source, bytes left
    double now_s = 0;
    const auto advance = [&](double date_s) {
      const auto rates = NaiveRates(*cluster, plans, running);
      for (auto& [transfer, flow] : running) {
        flow.second -= rates.at(transfer) * (date_s - now_s);
      }
      now_s = date_s;
    };
    const auto expected_end = [&] {
      double end_s = std::numeric_limits<double>::infinity();
      const auto rates = NaiveRates(*cluster, plans, running);
      for (const auto& [transfer, flow] : running) {
        end_s = std::min(end_s, now_s + flow.second / rates.at(transfer));
      }
      return end_s;
    };
    for (uint32_t step = 0; step < 60; ++step) {
      const double next_s = links.NextEnd(now_s);
      if (running.empty()) {
        REQUIRE(next_s == std::numeric_limits<double>::infinity());
      } else {
        REQUIRE(next_s == Approx(expected_end()).epsilon(1e-10));
      }
      if (step < 40 && (running.empty() || below(2) == 0)) {
        advance(running.empty() ? now_s + 0.5
                                : now_s + (next_s - now_s) * below(4) / 4);
        const int source = below(static_cast<int>(plans.size()));
        const double bytes = 1 + below(50);
        links.Start(now_s, source, bytes, step);
        running[step] = {source, bytes};
        continue;
      }
      if (running.empty()) break;
      advance(next_s);
      uint32_t transfer = 0;
      bool any = false;
      while (links.TakeEnded(now_s, &transfer)) {
        any = true;
        ++ended;
        REQUIRE(running.count(transfer) == 1);
        CHECK(std::abs(running[transfer].second) < 1e-8);
        running.erase(transfer);
      }
      REQUIRE(any);
    }
  }
  CHECK(ended > 4000);
}

// Looks for a flow: rings of four ranks over the cards of all their replicas,
// which come again and again, and hops from rank to rank that come at any time.
double LooksOfRings(int replicas) {
  constexpr int kRanks = 4;
  constexpr int kRounds = 20;
  std::vector<std::vector<LinkLoad>> loads(kRanks);
  const auto card = [&](int rank, int replica) {  // what it sends; behind it,
    return 2 * (rank * replicas + replica);       // what it gets
  };
  for (int rank = 0; rank < kRanks; ++rank) {
    for (int replica = 0; replica < replicas; ++replica) {
      loads[rank].push_back({card(rank, replica), 1});
      loads[rank].push_back({card(rank, replica) + 1, 1});
      for (const int other : {rank - 1, rank + 1}) {
        if (other < 0 || other == kRanks) continue;
        loads.push_back(
            {{card(rank, replica), 1}, {card(other, replica) + 1, 1}});
      }
    }
  }
  const auto cluster = ClusterOf(
      1, std::vector<Link>(2 * kRanks * replicas, Link{.bytes_per_s = 1}), {});
  FluidLinks links(*cluster, Flows(*cluster, loads));
  std::mt19937 random(1);
  std::exponential_distribution<double> some(1.0);
  using Begin = std::pair<double, uint32_t>;
  std::priority_queue<Begin, std::vector<Begin>, std::greater<>> begins;
  for (uint32_t source = 0; source < loads.size(); ++source) {
    begins.push({2 * some(random), source});
  }
  const int64_t all = static_cast<int64_t>(loads.size()) * kRounds;
  int64_t ended = 0;
  double now_s = 0;
  while (ended < all) {
    const double end_s = links.NextEnd(now_s);
    if (!begins.empty() && begins.top().first <= end_s) {
      const auto [begin_s, source] = begins.top();
      begins.pop();
      now_s = begin_s;
      const double bytes = source < kRanks ? 3 : 0.5;
      links.Start(now_s, static_cast<int>(source),
                  bytes * (1 + 0.1 * some(random)), source);
      continue;
    }
    now_s = end_s;
    uint32_t source = 0;
    while (links.TakeEnded(now_s, &source)) {
      ++ended;
      begins.push({now_s + 2 * some(random), source});
    }
  }
  return static_cast<double>(links.visits()) / static_cast<double>(all);
}

// A hop changes the rate of a ring where it is the one that holds it, and else
// that of those on its own cards alone.
TEST_CASE("fluid: work is linear in the members of rings", "[engine]") {
  const double few = LooksOfRings(16);
  const double many = LooksOfRings(256);
  INFO("looks of a flow: " << few << " of 16 members, " << many << " of 256");
  CHECK(many < 1.5 * few);
  CHECK(many < 16);
}

}  // namespace
}  // namespace pipewright::fluid_links_test
