// The V family against the reference schedulers' outputs in
// shared/oracle/schedules, where that folder is there.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/replay/replay.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/verify.h"
#include "tests/support/oracle.h"

namespace pipewright {
namespace {

using nlohmann::json;

void Say(const std::string& text) {
  std::fprintf(stderr, "oracle: %s\n", text.c_str());
}

double LargestPeak(const Schedule& schedule, double held) {
  const std::vector<double> peaks = PeakActivations(schedule, held);
  return *std::max_element(peaks.begin(), peaks.end());
}

struct FixedRule {
  const char* file;
  const char* name;
};
constexpr FixedRule kFixedRules[] = {{"1f1b_v", "1f1b-v"},
                                     {"v_min_greedy", "v-min"},
                                     {"v_half_greedy", "v-half"}};

TEST_CASE("oracle: 1f1b-v, v-min and v-half are the authors' orders",
          "[schedule]") {
  for (const FixedRule& rule : kFixedRules) {
    const int cases = testing::CheckFamilyA(rule.file, rule.name);
    const int few = testing::CheckSmallMicrobatches(rule.file, rule.name, 2);
    Say(absl::StrCat(rule.name, ": ", cases, " orders compared, ", few,
                     " with few or odd microbatches"));
  }
}

TEST_CASE("oracle: with costs the fixed V schedules get no worse",
          "[schedule]") {
  for (const FixedRule& rule : kFixedRules) {
    const json oracle = testing::LoadOracle(rule.file);
    if (oracle.is_null()) return;
    int compared = 0, faster = 0;
    for (const json& row : oracle["cases"]) {
      for (const auto& [cost_set, values] : row["costs"].items()) {
        INFO(rule.name << " p " << row["p"] << " m " << row["m"] << " "
                       << cost_set);
        ScheduleParams params;
        params.pp = row["p"];
        params.vpp = 2;
        params.microbatches = row["m"];
        const auto fixed = BuildSchedule(rule.name, params);
        params.costs = testing::CostsOfSet(cost_set);
        params.costs.given = true;
        for (const double held : {1.0, testing::HeldUntilWeightOf(cost_set)}) {
          params.costs.held_until_weight = held;
          const auto planned = BuildSchedule(rule.name, params);
          REQUIRE(planned.ok());
          REQUIRE(VerifySchedule(*planned).ok());
          const double span = Replay(*planned, params.costs)->span_per_rank;
          const double reference = values["span"];
          CHECK(span <= reference * (1 + 1e-12));
          CHECK(LargestPeak(*planned, held) <=
                LargestPeak(*fixed, held) + 1e-12);
          faster += span < reference * (1 - 1e-12);
          ++compared;
        }
      }
    }
    CHECK(compared > 0);
    Say(absl::StrCat(rule.name, " with costs: ", compared, " spans compared, ",
                     faster, " shorter"));
  }
}

TEST_CASE("oracle: the adaptive V planner", "[schedule]") {
  const json oracle = testing::LoadOracle("v_auto");
  if (oracle.is_null()) return;
  int compared = 0, same = 0;
  for (const json& row : oracle["cases"]) {
    const std::string cost_set = row["cost"];
    INFO("p " << row["p"] << " m " << row["m"] << " " << cost_set << " target "
              << row["target"]);
    ScheduleParams params;
    params.pp = row["p"];
    params.vpp = 2;
    params.microbatches = row["m"];
    params.max_activations = row["limit_halves"].get<double>() / 2;
    params.costs = testing::CostsOfSet(cost_set);
    params.costs.given = cost_set != "eq0";
    const auto schedule = BuildSchedule("v-zb", params);
    REQUIRE(schedule.ok());
    REQUIRE(VerifySchedule(*schedule).ok());
    const double span = Replay(*schedule, params.costs)->span_per_rank;
    CHECK(span <= row["span"].get<double>() * (1 + 1e-12));
    CHECK(LargestPeak(*schedule, 1) <= *params.max_activations);
    const bool equal = testing::OrdersOf(*schedule) ==
                       row["order"].get<std::vector<std::string>>();
    // F=B=W is a fixed rule; with costs another order may be better.
    if (!params.costs.given) CHECK(equal);
    same += equal;
    ++compared;
  }
  CHECK(compared > 0);
  Say(absl::StrCat("v-zb: ", compared, " spans compared, ", same,
                   " orders equal"));
}

}  // namespace
}  // namespace pipewright
