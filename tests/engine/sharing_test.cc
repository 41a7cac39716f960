// Links that are shared: who needs what, decided beforehand, and the queue
// for one link, against arithmetic by hand.
#include "sim/engine/sharing.h"

#include <catch2/catch.hpp>

#include "sim/engine/sharing_queue.h"
#include "tests/support/lowering.h"

namespace pipewright::sharing_test {
namespace {

TEST_CASE("sharing queue: equal transfers that start together", "[engine]") {
  SharingQueue queue(25e9);
  CHECK(queue.empty());
  queue.Start(0, 1e9, 7);
  CHECK(queue.NextEnd() == Approx(0.04));
  queue.Start(0, 1e9, 3);
  CHECK(queue.NextEnd() == Approx(0.08));
  // The lower number first, so that runs repeat.
  CHECK(queue.Finish(queue.NextEnd()) == 3);
  CHECK(queue.NextEnd() == Approx(0.08));
  CHECK(queue.Finish(queue.NextEnd()) == 7);
  CHECK(queue.empty());
}

TEST_CASE("sharing queue: a late transfer slows the one on its way",
          "[engine]") {
  SharingQueue queue(25e9);
  queue.Start(0, 1e9, 0);
  queue.Start(0.01, 1e9, 1);
  // A quarter alone, then half of the link each; the rest alone again.
  const double first_s = queue.NextEnd();
  CHECK(first_s == Approx(0.07).epsilon(1e-12));
  CHECK(queue.Finish(first_s) == 0);
  const double second_s = queue.NextEnd();
  CHECK(second_s - 0.01 == Approx(0.07).epsilon(1e-12));
  CHECK(queue.Finish(second_s) == 1);
}

TEST_CASE("sharing queue: three sizes, and idle time in between", "[engine]") {
  SharingQueue queue(6);
  queue.Start(100, 2, 0);
  queue.Start(100, 4, 1);
  queue.Start(100, 6, 2);
  const uint32_t version = queue.version();
  CHECK(queue.NextEnd() == Approx(101));  // 2 at 2/s
  CHECK(queue.Finish(101) == 0);
  CHECK(queue.version() != version);
  CHECK(queue.NextEnd() == Approx(100 + 1 + 2 / 3.0));  // 2 more at 3/s
  CHECK(queue.Finish(queue.NextEnd()) == 1);
  CHECK(queue.NextEnd() == Approx(102));  // 2 more at 6/s: 12 bytes in all
  CHECK(queue.Finish(102) == 2);
  queue.Start(1000, 3, 4);
  CHECK(queue.NextEnd() == Approx(1000.5));
}

TEST_CASE("sharing queue: a big transfer does not drown a small one",
          "[engine]") {
  SharingQueue queue(1e9);
  queue.Start(0, 1e12, 0);
  for (uint32_t number = 1; number <= 1000; ++number) {
    const double start_s = number * 0.01;
    queue.Start(start_s, 1000, number);
    const double end_s = queue.NextEnd();
    CHECK(end_s - start_s == Approx(2e-6).epsilon(1e-6));
    CHECK(queue.Finish(end_s) == number);
  }
  // 1000 bytes each were taken from it.
  CHECK(queue.NextEnd() == Approx(1000 + 1000 * 1e-6).epsilon(1e-12));
}

// Links 0 wide, 1 narrow, 2 wide, 3 narrow.
std::shared_ptr<const Cluster> FourLinks() {
  return ClusterOf(1,
                   {{.bytes_per_s = 4, .latency_s = 1},
                    {.bytes_per_s = 2, .latency_s = 10},
                    {.bytes_per_s = 4, .latency_s = 100},
                    {.bytes_per_s = 2, .latency_s = 1000}},
                   {});
}

struct Route {
  std::vector<LinkId> links;
  bool overlaps_itself = false;
};
std::vector<SourcePlan> Plans(const std::vector<Route>& routes) {
  const auto cluster = FourLinks();
  std::vector<TrafficSource> sources;
  for (const Route& route : routes) {
    sources.push_back({.flows = cluster->Bundle({route.links}),
                       .overlaps_itself = route.overlaps_itself});
  }
  return PlanSharing(*cluster, sources);
}

TEST_CASE("sharing: alone needs no more than a timer", "[engine]") {
  const auto plans = Plans({{{0, 1}}, {{2}}, {{}}});
  CHECK(plans[0].sharing == Sharing::kNone);
  CHECK(plans[0].latency_s == 11);
  CHECK(plans[0].bytes_per_s == 2);
  CHECK(plans[1].sharing == Sharing::kNone);
  CHECK(plans[2].sharing == Sharing::kNone);
  CHECK(plans[2].latency_s == 0);
}

TEST_CASE("sharing: one narrow link is a queue", "[engine]") {
  const auto plans = Plans({{{0, 1}}, {{1, 2}}, {{3}}});
  for (const int source : {0, 1}) {
    CHECK(plans[source].sharing == Sharing::kQueue);
    CHECK(plans[source].link == 1);
  }
  CHECK(plans[2].sharing == Sharing::kNone);
}

TEST_CASE("sharing: what a narrower link of one's own limits is a flow",
          "[engine]") {
  // They meet on wide link 0, which the first cannot fill.
  const auto plans = Plans({{{0, 1}}, {{0}}});
  CHECK(plans[0].sharing == Sharing::kFlow);
  CHECK(plans[1].sharing == Sharing::kFlow);
}

TEST_CASE("sharing: a queue of bundles", "[engine]") {
  // 1 B for one flow and 2 B for each of three: 4 s of 1.5 B/s each.
  SharingQueue queue(6);
  queue.Start(0, 1, 0, 1);
  queue.Start(0, 2, 1, 3);
  CHECK(queue.NextEnd() == Approx(4 / 6.0));
  CHECK(queue.Finish(queue.NextEnd()) == 0);
  CHECK(queue.NextEnd() == Approx(7 / 6.0));
}

// Three flows of a bundle fill a link of 4 B/s before one fills one of 2 B/s.
TEST_CASE("sharing: a bundle's narrowest link is its most loaded one",
          "[engine]") {
  const auto cluster = FourLinks();
  const auto plans =
      PlanSharing(*cluster, {{.flows = cluster->Bundle({{0, 1}, {0}, {0, 3}})},
                             {.flows = cluster->Bundle({{0}})}});
  CHECK(plans[0].bytes_per_s == 4 / 3.0);
  CHECK(plans[0].latency_s == 1001);
  CHECK(plans[0].sharing == Sharing::kQueue);
  CHECK(plans[0].link == 0);
  CHECK(plans[0].flows == 3);
  CHECK(plans[1].flows == 1);
}

TEST_CASE("sharing: two links in common are flows", "[engine]") {
  const auto plans = Plans({{{1, 3}}, {{1, 3}}});
  CHECK(plans[0].sharing == Sharing::kFlow);
  CHECK(plans[1].sharing == Sharing::kFlow);
}

TEST_CASE("sharing: a flow on a link makes flows of those it meets",
          "[engine]") {
  // The middle one meets others on two links.
  const auto plans = Plans({{{1}}, {{1, 3}}, {{3}}});
  for (const SourcePlan& plan : plans) CHECK(plan.sharing == Sharing::kFlow);
}

TEST_CASE("sharing: a source that overlaps itself", "[engine]") {
  // Alone on all its links: its narrowest link decides.
  auto plans = Plans({{{0, 1, 2}, true}, {{3}}});
  CHECK(plans[0].sharing == Sharing::kQueue);
  CHECK(plans[0].link == 1);
  CHECK(plans[1].sharing == Sharing::kNone);
  // It also meets somebody else.
  plans = Plans({{{0, 1}, true}, {{1}}});
  CHECK(plans[0].sharing == Sharing::kFlow);
  CHECK(plans[1].sharing == Sharing::kFlow);
  // On a single link the two queue together.
  plans = Plans({{{1}, true}, {{1}}});
  CHECK(plans[0].sharing == Sharing::kQueue);
  CHECK(plans[1].sharing == Sharing::kQueue);
}

}  // namespace
}  // namespace pipewright::sharing_test
