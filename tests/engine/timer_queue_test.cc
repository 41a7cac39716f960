#include "sim/engine/timer_queue.h"

#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <utility>

namespace pipewright::timer_queue_test {
namespace {

// Against a sorted set of (date, number of setting): few dates, so that many
// timers share one, or many; what is taken out sets new ones, some at once.
TEST_CASE("timers: come by date, those of a date as they were set",
          "[engine]") {
  int shared = 0;
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::mt19937 random(seed);
    const auto below = [&](uint32_t most) { return random() % most; };
    // More dates at a time than the queue remembers, or fewer.
    const uint32_t dates = seed % 3 == 0 ? 3 : seed % 3 == 1 ? 200 : 1u << 30;
    TimerQueue queue;
    std::set<std::pair<double, uint64_t>> expected;
    std::multiset<uint64_t> announced;
    uint64_t set = 0;
    double now_s = 0;
    const auto push = [&] {
      const double date_s = now_s + below(dates) * 0.25;
      shared += expected.lower_bound({date_s, 0}) !=
                        expected.lower_bound(
                            {date_s, std::numeric_limits<uint64_t>::max()})
                    ? 1
                    : 0;
      queue.Push(date_s, ++set);
      expected.insert({date_s, set});
    };
    CHECK(queue.next_s() == std::numeric_limits<double>::infinity());
    for (int step = 0; step < 2000; ++step) {
      if (expected.empty() || below(5) < (step < 1500 ? 3 : 1)) {
        push();
        continue;
      }
      REQUIRE_FALSE(queue.empty());
      const auto [date_s, number] = *expected.begin();
      REQUIRE(queue.next_s() == date_s);
      queue.LookAhead(static_cast<int>(below(6)), [&](uint64_t code) {
        // Tells those of this date that are still to come, each once.
        CHECK(expected.count({date_s, code}) == 1);
        CHECK(code != number);
        CHECK(announced.count(code) == 0);
        announced.insert(code);
      });
      REQUIRE(queue.Pop() == number);
      expected.erase(expected.begin());
      now_s = date_s;
      if (below(4) == 0) push();
    }
    CHECK((dates > 3 || announced.size() > 20));
  }
  CHECK(shared > 10000);
}

}  // namespace
}  // namespace pipewright::timer_queue_test
