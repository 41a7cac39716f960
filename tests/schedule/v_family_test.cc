// What the V family refuses, and how it keeps a memory limit.
#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"

namespace pipewright::v_family_test {
namespace {

constexpr PlanCosts kLongWeights = {.forward = 3,
                                    .backward_input = 5,
                                    .backward_weight = 7,
                                    .hop = 2,
                                    .given = true};

ScheduleParams Sizes(int pp, int microbatches) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = 2;
  params.microbatches = microbatches;
  return params;
}

double LargestPeak(const Schedule& schedule, double held) {
  const std::vector<double> peaks = PeakActivations(schedule, held);
  return *std::max_element(peaks.begin(), peaks.end());
}

TEST_CASE("V family: two chunks, no slices, two plans", "[schedule]") {
  for (const char* name : {"1f1b-v", "v-min", "v-half", "v-zb"}) {
    INFO(name);
    ScheduleParams params = Sizes(4, 8);
    params.vpp = 3;
    const auto chunks = BuildSchedule(name, params);
    CHECK(ExitCode(chunks.status()) == 2);
    CHECK_THAT(std::string(chunks.status().message()),
               Catch::Contains("strategy.vpp: 3 is not allowed; allowed: 2"));
    params = Sizes(4, 8);
    params.slices = 2;
    const auto slices = BuildSchedule(name, params);
    CHECK(ExitCode(slices.status()) == 2);
    CHECK_THAT(std::string(slices.status().message()),
               Catch::Contains("strategy.slices: 2 is not allowed; allowed: "
                               "1"));
  }
  ScheduleParams params = Sizes(4, 8);
  params.own = {{"plan", "slots"}};
  CHECK_THAT(std::string(BuildSchedule("v-half", params).status().message()),
             Catch::Contains("schedule.params.plan: slots is not allowed; "
                             "allowed: costs, reference"));
}

TEST_CASE("V family: plan=reference does not look at costs", "[schedule]") {
  int faster = 0;
  for (const char* name : {"v-min", "v-half", "v-zb"}) {
    INFO(name);
    ScheduleParams params = Sizes(4, 12);
    const auto without = BuildSchedule(name, params);
    params.costs = kLongWeights;
    const auto planned = BuildSchedule(name, params);
    params.own = {{"plan", "reference"}};
    const auto reference = BuildSchedule(name, params);
    REQUIRE((without.ok() && planned.ok() && reference.ok()));
    CHECK(ScheduleToText(*reference) == ScheduleToText(*without));
    const double least = Replay(*planned, kLongWeights)->span_per_rank;
    const double fixed = Replay(*reference, kLongWeights)->span_per_rank;
    CHECK(least <= fixed);
    faster += least < fixed;
  }
  CHECK(faster >= 2);
}

TEST_CASE("V family: v-zb keeps every limit down to the smallest",
          "[schedule]") {
  for (const int pp : {1, 2, 3, 5, 8}) {
    for (const int microbatches : {1, 3, 2 * pp}) {
      INFO("pp " << pp << " microbatches " << microbatches);
      double smallest = 0;
      for (int chunks = 2 * pp; chunks > 0 && smallest == 0; --chunks) {
        ScheduleParams params = Sizes(pp, microbatches);
        params.max_activations = chunks / 2.0;
        const auto schedule = BuildSchedule("v-zb", params);
        if (schedule.ok()) {
          CHECK(VerifySchedule(*schedule).ok());
          CHECK(LargestPeak(*schedule, 1) <= *params.max_activations);
          continue;
        }
        smallest = (chunks + 1) / 2.0;
        CHECK(ExitCode(schedule.status()) == 3);
        CHECK_THAT(std::string(schedule.status().message()),
                   Catch::Contains("strategy.max_activations: ") &&
                       Catch::Contains(
                           absl::StrCat("allowed: at least ", smallest, " ")));
      }
      CHECK(smallest > 0);
    }
  }
}

TEST_CASE("V family: where blocks are many, plans stay legal and no worse",
          "[schedule]") {
  for (const char* name : {"v-min", "v-half", "v-zb"}) {
    for (const int pp : {17, 24}) {
      INFO(name << " pp " << pp);
      ScheduleParams params = Sizes(pp, 4 * pp);
      params.own = {{"plan", "reference"}};
      const auto reference = BuildSchedule(name, params);
      params.own.clear();
      params.costs = kLongWeights;
      const auto planned = BuildSchedule(name, params);
      REQUIRE((reference.ok() && planned.ok()));
      CHECK(VerifySchedule(*planned).ok());
      CHECK(LargestPeak(*planned, 1) <= LargestPeak(*reference, 1));
      CHECK(Replay(*planned, kLongWeights)->span_per_rank <=
            Replay(*reference, kLongWeights)->span_per_rank);
    }
  }
}

}  // namespace
}  // namespace pipewright::v_family_test
