// What the search for plans of copies is made of: orders without a search, and
// a bound below every peak.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <set>

#include "absl/strings/string_view.h"
#include "sim/program/bookings.h"
#include "sim/program/lower.h"
#include "sim/program/place_queue.h"
#include "sim/program/program.h"
#include "sim/program/rank_plan.h"
#include "sim/program/time_index.h"
#include "sim/schedule/registry.h"

namespace pipewright::plan_parts_test {
namespace {

TEST_CASE("offload plan: a queue of places yields the least one", "[offload]") {
  std::mt19937 random(7);
  for (const int size : {1, 64, 65, 4096, 4097, 300'000}) {
    PlaceQueue queue(size);
    std::set<int32_t> expected;
    for (int step = 0; step < 3000; ++step) {
      REQUIRE(queue.empty() == expected.empty());
      const auto number = static_cast<int32_t>(random() % size);
      if (random() % 3 != 0) {
        if (expected.insert(number).second) queue.Push(number);
      } else if (!expected.empty()) {
        REQUIRE(queue.Pop() == *expected.begin());
        expected.erase(expected.begin());
      }
    }
  }
  CHECK(PlaceQueue(0).empty());
}

TEST_CASE("offload plan: positions of times are those that a search finds",
          "[offload]") {
  std::mt19937 random(8);
  std::vector<std::vector<double>> lists = {{}, {3}, {3, 3, 3}, {0, 1e-300, 1}};
  for (const double scale : {1e-6, 1.0, 1e9}) {
    std::vector<double> times;
    // Equal ones, and gaps that leave many parts empty.
    for (int time = 0; time < 200; ++time) {
      const double step = static_cast<double>(random() % 4) * scale;
      times.push_back((times.empty() ? -scale : times.back()) +
                      (random() % 50 == 0 ? 100 : 1) * step / 3);
    }
    lists.push_back(times);
  }
  for (const std::vector<double>& times : lists) {
    const TimeIndex index(times);
    std::vector<double> asked = times;
    for (const double time : times) {
      asked.push_back(std::nextafter(time, -1e30));
      asked.push_back(std::nextafter(time, 1e30));
      asked.push_back(time + 0.4);
    }
    asked.insert(asked.end(), {-1e30, 0, 1e30});
    for (const double time : asked) {
      CHECK(index.FirstFrom(time) ==
            std::lower_bound(times.begin(), times.end(), time) - times.begin());
      CHECK(index.FirstAfter(time) ==
            std::upper_bound(times.begin(), times.end(), time) - times.begin());
    }
  }
}

// Random moves of random sets: none is below the bound of its set, and where
// all go behind their forward and come when they are needed, it is their peak.
TEST_CASE("offload plan: no peak is below the bound of its set", "[offload]") {
  std::mt19937 random(9);
  for (const char* const name : {"1f1b", "po-f", "zb-h1", "dualpipe-v"}) {
    CAPTURE(name);
    ScheduleParams params;
    params.pp = 4;
    params.microbatches = 12;
    const bool has_chunks = absl::string_view(name) == "po-f" ||
                            absl::string_view(name) == "dualpipe-v";
    params.vpp = has_chunks ? 2 : 1;
    const auto built = BuildSchedule(name, params);
    REQUIRE(built.ok());
    const auto schedule = std::make_shared<const Schedule>(*built);
    LowerOptions options;
    options.costs = PassCosts::Uniform(
        params.pp, schedule->vpp(),
        {.forward_s = 1, .backward_input_s = 2, .backward_weight_s = 1});
    options.iterations = 1;
    const auto program = Lower(schedule, options);
    REQUIRE(program.ok());
    const auto times = EarliestTimes(*program);
    REQUIRE(times.ok());
    OffloadCosts costs;
    costs.out_s.assign(schedule->stages(), 0);
    costs.in_s = costs.out_s;
    for (int stage = 0; stage < schedule->stages(); ++stage) {
      costs.weight.push_back(1 + stage % 3);
      costs.moved.push_back(1 + 0.25 * (stage % 2));
      costs.until_weight.push_back(2);  // more than some forwards leave
    }
    std::vector<RankPlan> ranks;
    for (int rank = 0; rank < params.pp; ++rank) {
      ranks.emplace_back(*schedule, rank, (*times)[rank], costs);
    }
    for (int round = 0; round < 200; ++round) {
      AwaySet set(ranks);
      std::vector<CopyCandidate> chosen;
      std::vector<PlannedMove> moves;
      const bool at_once = round % 2 == 0;
      for (int rank = 0; rank < params.pp; ++rank) {
        const auto& activations = ranks[rank].activations();
        for (size_t index = 0; index < activations.size(); ++index) {
          if (random() % 3 == 0) continue;
          const PlannedActivation& each = activations[index];
          const auto part = [&] {
            return at_once ? 0 : 0.5 * static_cast<double>(random() % 8) / 8;
          };
          const double away_s = each.ready_s + part() * each.lifespan_s();
          const PlannedMove move = ranks[rank].MoveOf(
              static_cast<int32_t>(index), each.ready_s, away_s,
              each.needed_s - part() * each.lifespan_s());
          if (!ranks[rank].Helps(move)) continue;
          chosen.push_back({rank, static_cast<int32_t>(index)});
          moves.push_back(move);
          set.Add(chosen.back());
        }
      }
      const Bookings booked = BookingsOf(ranks, chosen, moves, nullptr);
      CHECK_FALSE(booked.LowerThan(booked));
      CHECK_FALSE(set.CannotBeLowerThan(booked));
      // A best below all of them, in the highest peak or in the sum alone.
      Bookings lower = booked;
      lower.highest *= 1 - 1e-6;
      lower.sum *= 1 - 1e-6;
      if (at_once) {
        CHECK(set.CannotBeLowerThan(lower));
        lower.highest = booked.highest;
        CHECK(set.CannotBeLowerThan(lower));
      }
    }
  }
}

}  // namespace
}  // namespace pipewright::plan_parts_test
