// zb-auto is never slower than a greedy list, whatever the limit.
#include "sim/schedule/zb_list_plan.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/plan_ticks.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"
#include "tests/support/greedy_list.h"
#include "tests/support/prepare.h"
#include "tests/support/random_schedule.h"
#include "tests/support/rounds.h"

namespace pipewright::zb_list_plan_test {
namespace {

using testing::GreedyList;
using testing::ListGreedily;

Schedule Planned(const ScheduleParams& params, double limit) {
  ScheduleParams limited = params;
  limited.max_activations = limit;
  auto schedule = BuildSchedule("zb-auto", limited);
  INFO(schedule.status());
  REQUIRE(schedule.ok());
  return *std::move(schedule);
}

double SpanOf(const Schedule& schedule, const PlanCosts& costs) {
  const auto times = Replay(schedule, costs);
  INFO(times.status());
  REQUIRE(times.ok());
  return times->span_per_rank;
}

// Whole numbers, some of them 0; the stages differ in half of the cases.
ScheduleParams AnyParams(Random& random, int most_ranks) {
  ScheduleParams params;
  params.pp = random.Int(1, most_ranks);
  params.microbatches = random.Int(1, 4 * params.pp + 2);
  const auto times = [&] {
    return StageTimes{
        .forward = static_cast<double>(random.Int(1, 24)),
        .backward_input = static_cast<double>(random.Int(0, 24)),
        .backward_weight = static_cast<double>(random.Int(0, 24))};
  };
  PlanCosts& costs = params.costs;
  costs.given = true;
  costs.hop = random.Chance(50) ? 0 : random.Int(0, 12);
  costs.held_until_weight = random.Chance(50) ? 1 : random.Int(0, 8) / 8.0;
  if (random.Chance(50)) {
    const StageTimes all = times();
    costs.forward = all.forward;
    costs.backward_input = all.backward_input;
    costs.backward_weight = all.backward_weight;
    return params;
  }
  costs.forward = costs.backward_input = costs.backward_weight = 0;
  for (int rank = 0; rank < params.pp; ++rank) {
    costs.stages.push_back(times());
    costs.forward += costs.stages.back().forward / params.pp;
    costs.backward_input += costs.stages.back().backward_input / params.pp;
    costs.backward_weight += costs.stages.back().backward_weight / params.pp;
  }
  return params;
}

TEST_CASE("zero bubble: zb-auto is never slower than a greedy list",
          "[schedule]") {
  Random random(10);
  int faster = 0;
  int as_fast = 0;
  for (int round = 0; round < testing::Rounds(400); ++round) {
    const ScheduleParams params = AnyParams(random, 20);
    for (const double part : {1 / 6.0, 1 / 3.0, 0.5, 1.0, 2.0}) {
      const double limit = std::max(1.0, part * params.pp);
      const Schedule schedule = Planned(params, limit);
      const GreedyList greedy = ListGreedily(params, limit);
      INFO("round " << round << " pp " << params.pp << " microbatches "
                    << params.microbatches << " limit " << limit);
      REQUIRE(VerifySchedule(schedule) == absl::OkStatus());
      const double span = SpanOf(schedule, params.costs);
      CHECK(span <= greedy.span_per_rank * (1 + 1e-9));
      ++(span < greedy.span_per_rank * (1 - 1e-9) ? faster : as_fast);
      const std::vector<double> peaks =
          PeakActivations(schedule, params.costs.held_until_weight);
      CHECK(*std::max_element(peaks.begin(), peaks.end()) <=
            limit * (1 + 1e-9));
    }
  }
  // Mostly better than it, not always it.
  CHECK(faster > as_fast / 2);
  CHECK(as_fast > 0);
}

// Two programs that were written apart, of the same rule.
TEST_CASE("zero bubble: lists are those of an independent one", "[schedule]") {
  Random random(11);
  for (int round = 0; round < testing::Rounds(300); ++round) {
    ScheduleParams params = AnyParams(random, 12);
    // A pass that takes no time may end before or after another begins.
    params.costs.backward_input += 1;
    for (StageTimes& stage : params.costs.stages) stage.backward_input += 1;
    const double limit = 1 + random.Int(0, 8 * 2 * params.pp) / 8.0;
    INFO("round " << round << " pp " << params.pp << " microbatches "
                  << params.microbatches << " limit " << limit);
    const GreedyList greedy = ListGreedily(params, limit);
    ZbListPlanner planner(params);
    ScheduleBuilder builder("list", Placement::Plain(params.pp),
                            params.microbatches);
    planner.Record({.limit = limit, .patience = ZbPatience::kNothing},
                   &builder);
    const Schedule list = std::move(builder).Finish();
    for (int rank = 0; rank < params.pp; ++rank) {
      CHECK(list.order(rank) == greedy.orders[rank]);
    }
    CHECK(SpanOf(list, params.costs) ==
          Approx(greedy.span_per_rank).epsilon(1e-12));

    // The planner knows the span of its list, and what none can beat.
    const ZbList best = planner.Improve(limit, ZbList());
    ScheduleBuilder best_builder("best", Placement::Plain(params.pp),
                                 params.microbatches);
    planner.Record(best, &best_builder);
    const std::vector<PlanTicks> ticks = TicksOfStages(params);
    const double ticks_a_unit =
        static_cast<double>(ticks[0].forward) /
        (params.costs.stages.empty() ? params.costs.forward
                                     : params.costs.stages[0].forward);
    CHECK(SpanOf(std::move(best_builder).Finish(), params.costs) *
              ticks_a_unit ==
          Approx(static_cast<double>(best.span)).epsilon(1e-9));
    CHECK(best.span >= LeastSpan(ticks, params.microbatches, limit));
  }
}

TEST_CASE("zero bubble: limits below pp cost no more than they must",
          "[schedule]") {
  ScheduleParams params;
  params.pp = 128;
  params.microbatches = 512;
  params.costs = {.forward = 20,
                  .backward_input = 21,
                  .backward_weight = 16,
                  .given = true};
  double last = 1e9;
  for (const double limit : {22.0, 43.0, 64.0}) {
    const double span = SpanOf(Planned(params, limit), params.costs);
    // Rank 0 waits for `limit` microbatches to come back from 128 ranks.
    const double bound = 512 / limit * 128 * 41;
    INFO("limit " << limit);
    CHECK(span < 1.13 * bound);
    CHECK(span < 0.95 * ListGreedily(params, limit).span_per_rank);
    CHECK(span < last);
    last = span;
  }
}

TEST_CASE("zero bubble: plans know what each stage takes", "[config]") {
  const auto prepared = [](const char* costs) {
    return testing::Prepared(
        absl::StrCat("schedule: {name: zb-auto}\n"
                     "strategy: {pp: 4, microbatches: 12, max_activations: 3}\n"
                     "costs:\n  p2p: 0\n  uniform: {backward_weight: 10ms}\n",
                     costs));
  };
  const auto text = [](const PreparedRun& run) {
    return ScheduleToText(*run.schedule.written);
  };
  // The same mean: a planner of means would plan the same.
  const PreparedRun equal = prepared(
      "  per_stage: {forward: [10ms, 10ms, 10ms, 10ms], "
      "backward_input: [10ms, 10ms, 10ms, 10ms]}\n");
  const PreparedRun uneven = prepared(
      "  per_stage: {forward: [4ms, 4ms, 4ms, 28ms], "
      "backward_input: [4ms, 4ms, 4ms, 28ms]}\n");
  CHECK(text(uneven) != text(equal));
  const PreparedRun uniform = prepared(
      "  per_stage: {forward: [10ms, 10ms, 10ms, 10ms], "
      "backward_input: [10ms, 10ms, 10ms, 10ms]}\n");
  CHECK(text(uniform) == text(equal));
}

}  // namespace
}  // namespace pipewright::zb_list_plan_test
