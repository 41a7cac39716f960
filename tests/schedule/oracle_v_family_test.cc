// The V family against what the authors' schedulers gave
// (tests/oracle/README.md).
#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/verify.h"
#include "tests/support/json.h"
#include "tests/support/oracle.h"

namespace pipewright::oracle_v_family_test {
namespace {

using testing::Json;

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
    testing::Compared compared = testing::CheckFamilyA(rule.file, rule.name);
    compared += testing::CheckSmallMicrobatches(rule.file, rule.name, 2);
    testing::SayCompared(rule.name, compared);
  }
}

TEST_CASE("oracle: with costs the fixed V schedules get no worse",
          "[schedule]") {
  for (const FixedRule& rule : kFixedRules) {
    const Json oracle = testing::LoadOracle(rule.file);
    testing::Compared compared;
    int faster = 0;
    for (const Json& row : oracle["cases"]) {
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
          ++compared.cases;
          ++compared.peaks;
        }
      }
    }
    CHECK(compared.cases > 0);
    testing::SayCompared(absl::StrCat(rule.name, " with costs"), compared,
                         absl::StrCat(faster, " shorter"));
  }
}

TEST_CASE("oracle: the adaptive V planner", "[schedule]") {
  const Json oracle = testing::LoadOracle("v_auto");
  testing::Compared compared;
  int same = 0;
  for (const Json& row : oracle["cases"]) {
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
    ++compared.cases;
    ++compared.peaks;
  }
  CHECK(compared.cases > 0);
  testing::SayCompared("v-zb", compared, absl::StrCat(same, " orders equal"));
}

}  // namespace
}  // namespace pipewright::oracle_v_family_test
