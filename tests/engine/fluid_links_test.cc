#include "sim/engine/fluid_links.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <random>

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

}  // namespace
}  // namespace pipewright::fluid_links_test
