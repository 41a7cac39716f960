// V-Min, V-Half and V-ZB with costs: what launches that mix two gaps gain over
// a block that repeats every microbatch, held against the bound of the memory.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "schedules/v_launch.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"

namespace pipewright::v_launch_test {
namespace {

PlanCosts Costs(double forward, double backward_input, double backward_weight,
                double hop) {
  PlanCosts costs;
  costs.forward = forward;
  costs.backward_input = backward_input;
  costs.backward_weight = backward_weight;
  costs.hop = hop;
  costs.given = true;
  return costs;
}

// The last two: table 9 of arXiv 2401.10241, 1.5B and 28.3B.
const std::vector<PlanCosts>& CostSets() {
  static const auto* const sets =
      new std::vector<PlanCosts>{Costs(1, 1.1, 0.6, 0),
                                 Costs(1, 1.3, 0.7, 0.03),
                                 Costs(1, 2, 1, 0),
                                 Costs(1.2, 1, 1, 0.02),
                                 Costs(3, 5, 7, 2),
                                 Costs(18.522, 18.086, 9.337, 0.601),
                                 Costs(10.408, 10.204, 7.703, 0.408)};
  return *sets;
}

Schedule Build(const char* name, int pp, int microbatches,
               const PlanCosts& costs, const char* plan = "costs") {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = 2;
  params.microbatches = microbatches;
  params.costs = costs;
  params.own = {{"plan", plan}};
  absl::StatusOr<Schedule> schedule = BuildSchedule(name, params);
  REQUIRE(schedule.ok());
  REQUIRE(VerifySchedule(*schedule).ok());
  return *std::move(schedule);
}

double LargestPeak(const Schedule& schedule, double held) {
  const std::vector<double> peaks = PeakActivations(schedule, held);
  return *std::max_element(peaks.begin(), peaks.end());
}

double Span(const Schedule& schedule, const PlanCosts& costs) {
  return Replay(schedule, costs)->span_per_rank;
}

// What a further microbatch adds to the span.
double Period(const char* name, int pp, const PlanCosts& costs,
              const char* plan = "costs") {
  const int few = 4 * pp;
  const int many = 8 * pp;
  return (Span(Build(name, pp, many, costs, plan), costs) -
          Span(Build(name, pp, few, costs, plan), costs)) /
         (many - few);
}

TEST_CASE("V launches: the bound is work, or what memory lets through",
          "[schedule]") {
  // 9 F and B of half a microbatch and 2 W of a half in 4 or in 3 places.
  const PlanCosts costs = Costs(2, 4, 1, 0);
  CHECK(LeastVPeriod(4, 4, costs) == 7);
  CHECK(LeastVPeriod(4, 3, costs) == Approx((9 * (1 + 2) + 1) / 3.0));
  // And 12 hops.
  CHECK(LeastVPeriod(4, 3, Costs(2, 4, 1, 0.5)) ==
        Approx((9 * (1 + 2) + 1 + 6) / 3.0));
  CHECK(LeastVPeriod(1, 2, costs) == 7);
}

TEST_CASE("V launches: no V schedule is below the bound of its own peak",
          "[schedule]") {
  double nearest = 100;
  for (const char* name : {"v-min", "v-half", "v-zb", "zb-v"}) {
    for (const int pp : {2, 3, 4, 5, 7, 8}) {
      for (const PlanCosts& costs : CostSets()) {
        INFO(name << " pp " << pp << " F " << costs.forward << " B "
                  << costs.backward_input);
        const int microbatches = 6 * pp;
        ScheduleParams params;
        params.pp = pp;
        params.vpp = 2;
        params.microbatches = microbatches;
        params.costs = costs;
        const auto schedule = BuildSchedule(name, params);
        REQUIRE(schedule.ok());
        const int chunks = static_cast<int>(2 * LargestPeak(*schedule, 1));
        const double least = microbatches * LeastVPeriod(pp, chunks, costs);
        const double span = Span(*schedule, costs);
        CHECK(span >= least * (1 - 1e-9));
        nearest = std::min(nearest, span / least);
      }
    }
  }
  // The bound is near enough to say something.
  CHECK(nearest < 1.03);
}

TEST_CASE("V launches: V-Min's stall goes as far as its peak allows",
          "[schedule]") {
  struct Case {
    int pp;
    // Most that the period is over the bound, for any of the cost sets.
    double above_bound;
    // Most that the period is over the fixed order's.
    double of_fixed;
  };
  // floor((p+4)/3) leaves most memory over where p mod 3 is 2, least where it
  // is 1: there the block's three ranks a turn are nearly all that fits.
  for (const Case& row :
       {Case{4, 1.26, 1.001}, Case{5, 1.14, 0.88}, Case{6, 1.2, 0.97},
        Case{7, 1.33, 1.001}, Case{8, 1.18, 0.95}, Case{11, 1.22, 0.97}}) {
    for (const PlanCosts& costs : CostSets()) {
      INFO("pp " << row.pp << " F " << costs.forward << " B "
                 << costs.backward_input << " W " << costs.backward_weight);
      const int chunks = 2 * ((row.pp + 4) / 3);
      const double period = Period("v-min", row.pp, costs);
      const double fixed = Period("v-min", row.pp, costs, "reference");
      const double bound = LeastVPeriod(row.pp, chunks, costs);
      CAPTURE(period / bound, period / fixed, bound / costs.work());
      CHECK(period >= bound * (1 - 1e-9));
      CHECK(period <= bound * row.above_bound);
      CHECK(period <= fixed * row.of_fixed);
    }
  }
}

TEST_CASE("V launches: where the peak leaves room, V-Min does not stall",
          "[schedule]") {
  for (const PlanCosts& costs : {Costs(1, 1.1, 0.6, 0), Costs(1, 2, 1, 0),
                                 Costs(18.522, 18.086, 9.337, 0.601),
                                 Costs(10.408, 10.204, 7.703, 0.408)}) {
    INFO("F " << costs.forward << " B " << costs.backward_input);
    CHECK(Period("v-min", 5, costs) == Approx(costs.work()));
    // The cycle of its block: three ranks a turn.
    CHECK(Period("v-min", 5, costs, "reference") ==
          Approx(3 * std::max(costs.forward, costs.backward_input) +
                 4 * costs.hop));
  }
}

// Shortest periods that solvers have found, and proved, within V-Min's memory:
// experiments/v_min_optimum.
TEST_CASE("V launches: V-Min is near the optimum of its memory", "[schedule]") {
  struct Row {
    int pp;
    PlanCosts costs;
    double least;  // period over work
  };
  for (const Row& row :
       {Row{4, Costs(10, 11, 6, 0), 1.1944}, Row{4, Costs(10, 13, 7, 0), 1.15},
        Row{4, Costs(6, 5, 5, 0), 1.1042}, Row{7, Costs(10, 11, 6, 0), 1.2222},
        Row{7, Costs(10, 13, 7, 0), 1.2556}, Row{7, Costs(6, 5, 5, 0), 1.125},
        Row{16, Costs(10, 11, 6, 0), 1.2222}, Row{16, Costs(10, 13, 7, 0), 1.3},
        Row{16, Costs(6, 5, 5, 0), 1.125}}) {
    const double period = Period("v-min", row.pp, row.costs) / row.costs.work();
    INFO("pp " << row.pp << " F " << row.costs.forward << " B "
               << row.costs.backward_input << ": " << period);
    CHECK(period >= row.least - 1e-4);
    CHECK(period <= row.least * 1.04);
  }
}

TEST_CASE("V launches: plans are faster at no higher peak", "[schedule]") {
  for (const char* name : {"v-min", "v-half"}) {
    for (const double held : {1.0, 0.37}) {
      int faster = 0;
      for (const int pp : {4, 5, 8, 16}) {
        for (PlanCosts costs : CostSets()) {
          INFO(name << " pp " << pp << " held " << held << " F "
                    << costs.forward << " B " << costs.backward_input);
          costs.held_until_weight = held;
          const Schedule plan = Build(name, pp, 4 * pp, costs);
          const Schedule fixed = Build(name, pp, 4 * pp, costs, "reference");
          for (const double counted : {1.0, held}) {
            CHECK(LargestPeak(plan, counted) <=
                  LargestPeak(fixed, counted) + 1e-9);
          }
          CHECK(Span(plan, costs) <= Span(fixed, costs) * (1 + 1e-12));
          faster += Span(plan, costs) < 0.95 * Span(fixed, costs);
        }
      }
      CAPTURE(name, held);
      CHECK(faster >= (name == std::string("v-min") ? 15 : 4));
    }
  }
}

TEST_CASE("V launches: a plan holds what it says", "[schedule]") {
  for (const int pp : {1, 2, 3, 6, 9}) {
    for (const int microbatches : {1, 2, 5, 4 * pp}) {
      for (const PlanCosts& costs : CostSets()) {
        for (int chunks = 2; chunks <= 2 * pp; ++chunks) {
          INFO("pp " << pp << " microbatches " << microbatches << " chunks "
                     << chunks);
          const auto plan = PlanVLaunches(
              pp, microbatches, {.chunks = chunks, .activations = chunks / 2.0},
              costs, 120000);
          if (!plan) continue;
          CHECK(VPeakChunks(plan->orders) <= chunks);
          CHECK(plan->span == Approx(VSpan(plan->orders, costs)));
          CHECK(VerifySchedule(VSchedule("v-min", plan->orders)).ok());
        }
        // All of 1F1B's memory is always enough, one chunk never.
        CHECK(PlanVLaunches(pp, microbatches,
                            {.chunks = 2 * pp, .activations = 1.0 * pp}, costs,
                            120000));
        CHECK_FALSE(PlanVLaunches(pp, microbatches,
                                  {.chunks = 1, .activations = 1.0 * pp}, costs,
                                  120000));
        CHECK_FALSE(PlanVLaunches(pp, microbatches,
                                  {.chunks = 2 * pp, .activations = 0.5}, costs,
                                  120000));
      }
    }
  }
}

TEST_CASE("V launches: costs without F, B or W still make a plan",
          "[schedule]") {
  for (const PlanCosts& costs :
       {Costs(0, 0, 1, 0), Costs(1, 1, 0, 0), Costs(0, 1, 1, 0),
        Costs(1, 1, 5000, 0), Costs(1, 1, 1, 5000)}) {
    for (const char* name : {"v-min", "v-half", "v-zb"}) {
      const Schedule plan = Build(name, 6, 18, costs);
      const Schedule fixed = Build(name, 6, 18, costs, "reference");
      CHECK(Span(plan, costs) <= Span(fixed, costs) * (1 + 1e-12));
    }
  }
}

}  // namespace
}  // namespace pipewright::v_launch_test
