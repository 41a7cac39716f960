// What the zero-bubble planners promise beyond their reference: limits, units
// of the costs, refusals.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/plan_ticks.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"
#include "sim/schedule/zb_auto_plan.h"
#include "sim/schedule/zb_v_plan.h"

namespace pipewright::zero_bubble_planners_test {
namespace {

// 28.3B of arXiv 2401.10241, table 6, and its appendix G.
const PlanCosts kLarge = {.forward = 10.419,
                          .backward_input = 10.207,
                          .backward_weight = 7.715,
                          .hop = 0.408,
                          .held_until_weight = 0.43243,
                          .given = true};

ScheduleParams Params(int pp, int vpp, int microbatches) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = vpp;
  params.microbatches = microbatches;
  params.costs = kLarge;
  return params;
}

double Peak(const Schedule& schedule, double held) {
  const std::vector<double> peaks = PeakActivations(schedule, held);
  return *std::max_element(peaks.begin(), peaks.end());
}

double BubbleRate(const ScheduleParams& params, const std::string& name) {
  const auto schedule = BuildSchedule(name, params);
  REQUIRE(schedule.ok());
  const auto times = Replay(*schedule, params.costs);
  REQUIRE(times.ok());
  return 1 - params.microbatches * params.costs.work() / times->span_per_rank;
}

TEST_CASE("zero bubble: more memory never costs zb-auto time", "[schedule]") {
  int smaller = 0;
  for (const int pp : {2, 3, 4, 8}) {
    for (const int microbatches : {pp, 2 * pp, 3 * pp + 1}) {
      for (const double weight : {1.0, 7.715, 15.0}) {
        ScheduleParams params = Params(pp, 1, microbatches);
        params.costs.backward_weight = weight;
        double least = 1;
        for (int eighths = 8; eighths <= 24; ++eighths) {
          params.max_activations = eighths * pp / 8.0;
          INFO("pp " << pp << " microbatches " << microbatches << " W "
                     << weight << " limit " << *params.max_activations);
          params.own = {{"search", "limit"}};
          const double at_limit = BubbleRate(params, "zb-auto");
          params.own = {{"search", "below"}};
          const double bubble = BubbleRate(params, "zb-auto");
          CHECK(bubble <= at_limit + 1e-12);
          CHECK(bubble <= least + 1e-12);
          smaller += bubble < at_limit - 1e-9 ? 1 : 0;
          least = bubble;
        }
      }
    }
  }
  CHECK(smaller > 0);
}

// Also says that what the planners keep of past passes is enough.
TEST_CASE("zero bubble: planners know the bubble of their plan", "[schedule]") {
  std::mt19937 random(5);
  const auto draw = [&](int most) {
    return static_cast<double>(random() % most);
  };
  for (int round = 0; round < 300; ++round) {
    const int pp = 1 + static_cast<int>(random() % 9);
    const int microbatches = 1 + static_cast<int>(random() % 60);
    ScheduleParams params = Params(pp, 1, microbatches);
    params.costs.forward = 2 + 2 * draw(20);
    params.costs.backward_input = 2 + 2 * draw(20);
    params.costs.backward_weight = 2 * draw(20);
    params.costs.hop = draw(random() % 4 == 0 ? 200 : 8);
    params.costs.held_until_weight = draw(9) / 8;
    const double limit = pp * (1 + draw(20) / 8);
    INFO("round " << round << " pp " << pp << " microbatches " << microbatches
                  << " limit " << limit);
    const auto check = [&](ScheduleBuilder builder, double bubble) {
      const Schedule schedule = std::move(builder).Finish();
      REQUIRE(VerifySchedule(schedule) == absl::OkStatus());
      const auto times = Replay(schedule, params.costs);
      REQUIRE(times.ok());
      const double work = params.costs.work();
      CHECK(times->span_per_rank / work - microbatches ==
            Approx(bubble).margin(1e-9));
    };
    ZbAutoPlanner planner(params);
    const ZbPlan plan = planner.Improve(limit, ZbPlan());
    ScheduleBuilder plain("plain", Placement::Plain(pp), microbatches);
    planner.Record(plan, &plain);
    check(std::move(plain),
          static_cast<double>(plan.bubble) / TicksOf(params).work());
    CHECK(plan.bubble >= planner.LeastBubble(limit));
    params.vpp = 2;
    ZbVPlanner v_planner(params, limit);
    ScheduleBuilder v("v", Placement::V(pp), microbatches);
    v_planner.Record(&v);
    check(std::move(v),
          static_cast<double>(v_planner.bubble()) / 2 / TicksOf(params).work());
  }
}

TEST_CASE("zero bubble: a plan does not depend on the unit of its costs",
          "[schedule]") {
  for (const char* name : {"zb-auto", "zb-v"}) {
    ScheduleParams params = Params(8, std::string(name) == "zb-v" ? 2 : 1, 24);
    const auto milliseconds = BuildSchedule(name, params);
    REQUIRE(milliseconds.ok());
    for (const double unit : {1e-12, 1e-3, 1e3, 1e15}) {
      ScheduleParams scaled = params;
      scaled.costs.forward *= unit;
      scaled.costs.backward_input *= unit;
      scaled.costs.backward_weight *= unit;
      scaled.costs.hop *= unit;
      const auto schedule = BuildSchedule(name, scaled);
      REQUIRE(schedule.ok());
      CHECK(ScheduleToText(*schedule) == ScheduleToText(*milliseconds));
    }
  }
}

TEST_CASE("zero bubble: ticks keep decimal costs exact", "[schedule]") {
  ScheduleParams params = Params(8, 2, 24);
  params.costs.forward = 0.3;
  params.costs.backward_input = 0.1;
  params.costs.backward_weight = 0.2;
  params.costs.hop = 0;
  const PlanTicks ticks = TicksOf(params);
  CHECK(ticks.forward == ticks.backward_input + ticks.backward_weight);
  CHECK(ticks.forward > 100000000000);
  CHECK(ticks.work() == 2 * ticks.forward);
  // All of it in sequence stays below 2^63.
  params.pp = 1024;
  params.microbatches = 1 << 20;
  CHECK(TicksOf(params).forward * 5.0 * 1024 * 2 * (1 << 20) < 9.2e18);
  params.costs = {.forward = 0, .backward_input = 0, .backward_weight = 0};
  CHECK(TicksOf(params).work() == 0);
}

TEST_CASE("zero bubble: free passes and far ranks are planned too",
          "[schedule]") {
  const std::vector<PlanCosts> extremes = {
      {.forward = 0, .backward_input = 0, .backward_weight = 0, .given = true},
      {.forward = 0, .backward_input = 1, .backward_weight = 1, .given = true},
      {.forward = 1, .backward_input = 0, .backward_weight = 0, .given = true},
      {.forward = 1e-9,
       .backward_input = 1e-9,
       .backward_weight = 1e-9,
       .hop = 1e9,
       .given = true},
  };
  for (const PlanCosts& costs : extremes) {
    for (const double held : {0.0, 1.0 / 3, 1.0}) {
      for (const int pp : {1, 2, 5}) {
        for (const int microbatches : {1, 4, 13}) {
          for (const int vpp : {1, 2}) {
            ScheduleParams params = Params(pp, vpp, microbatches);
            params.costs = costs;
            params.costs.held_until_weight = held;
            params.max_activations = pp;
            const auto schedule =
                BuildSchedule(vpp == 1 ? "zb-auto" : "zb-v", params);
            REQUIRE(schedule.ok());
            CHECK(VerifySchedule(*schedule) == absl::OkStatus());
            CHECK(Peak(*schedule, held) <= pp * (1 + 1e-9));
          }
        }
      }
    }
  }
}

TEST_CASE("zero bubble: limits are kept, or the least one is named",
          "[schedule]") {
  for (const int pp : {1, 2, 3, 8}) {
    for (const int microbatches : {1, 2, pp, 3 * pp}) {
      for (const double held : {0.0, 0.43243, 1.0}) {
        for (double given = 0.5; given <= 2 * pp; given += 0.25) {
          for (const int vpp : {1, 2}) {
            double limit = given;
            ScheduleParams params = Params(pp, vpp, microbatches);
            params.costs.held_until_weight = held;
            params.max_activations = limit;
            const char* name = vpp == 1 ? "zb-auto" : "zb-v";
            INFO(name << " pp " << pp << " microbatches " << microbatches
                      << " held " << held << " limit " << limit);
            auto schedule = BuildSchedule(name, params);
            if (!schedule.ok()) {
              CHECK(schedule.status().code() ==
                    absl::StatusCode::kResourceExhausted);
              const std::string message(schedule.status().message());
              CHECK(message.find(absl::StrCat("strategy.max_activations: ",
                                              limit)) == 0);
              const double least =
                  std::stod(message.substr(message.rfind("is ") + 3));
              CHECK(least > limit);
              CHECK(least <= (vpp == 1 ? 1 : pp));
              limit = least;
              params.max_activations = least;
              schedule = BuildSchedule(name, params);
            }
            REQUIRE(schedule.ok());
            CHECK(Peak(*schedule, held) <= limit * (1 + 1e-9));
          }
        }
      }
    }
  }
}

TEST_CASE("zero bubble: refusals say what is allowed", "[schedule]") {
  const auto message = [](const std::string& name, ScheduleParams params,
                          const std::string& key, const std::string& value) {
    if (!key.empty()) params.own = {{key, value}};
    const auto schedule = BuildSchedule(name, params);
    CHECK(schedule.status().code() == absl::StatusCode::kInvalidArgument);
    return std::string(schedule.status().message());
  };
  CHECK(message("zb-auto", Params(4, 2, 8), "", "") ==
        "strategy.vpp: 2 is not allowed; allowed: 1 (schedule zb-auto)");
  CHECK(message("zb-v", Params(4, 1, 8), "", "") ==
        "strategy.vpp: 1 is not allowed; allowed: 2 (schedule zb-v)");
  CHECK(message("zb-auto", Params(4, 1, 8), "search", "above") ==
        "schedule.params.search: above is not allowed; allowed: below, limit");
  CHECK(message("zb-v", Params(4, 2, 8), "variant", "torch") ==
        "schedule.params.variant: torch is not allowed; allowed: handcrafted, "
        "automatic");
  ScheduleParams sliced = Params(4, 1, 8);
  sliced.slices = 2;
  CHECK(message("zb-auto", sliced, "", "") ==
        "strategy.slices: 2 is not allowed; allowed: 1 (schedule zb-auto)");
}

TEST_CASE("zero bubble: zb-v is handcrafted until something is given",
          "[schedule]") {
  const auto text = [](const ScheduleParams& params, const char* name) {
    const auto schedule = BuildSchedule(name, params);
    REQUIRE(schedule.ok());
    return ScheduleToText(*schedule);
  };
  ScheduleParams params = Params(4, 2, 8);
  params.costs = PlanCosts();
  const std::string handcrafted = text(params, "zb-v");
  params.max_activations = 4;
  const std::string automatic = text(params, "zb-v");
  CHECK(automatic != handcrafted);
  CHECK(text(params, "ZBVZeroBubble") == handcrafted);
  params.max_activations.reset();
  params.own = {{"variant", "automatic"}};
  CHECK(text(params, "zb-v") == automatic);
  params.own.clear();
  params.costs = kLarge;
  CHECK(text(params, "zb-v") != handcrafted);
  CHECK(text(params, "schedulezbvzerobubble") == handcrafted);
}

}  // namespace
}  // namespace pipewright::zero_bubble_planners_test
