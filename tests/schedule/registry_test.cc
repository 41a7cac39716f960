#include "sim/schedule/registry.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/text.h"

namespace pipewright::registry_test {
namespace {

ScheduleParams Sizes(int pp, int vpp, int microbatches) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = vpp;
  params.microbatches = microbatches;
  return params;
}

std::string Error(absl::string_view name, const ScheduleParams& params) {
  const auto schedule = BuildSchedule(name, params);
  REQUIRE_FALSE(schedule.ok());
  CHECK(schedule.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(schedule.status().message());
}

TEST_CASE("registry: rows are sorted and complete", "[schedule]") {
  std::string previous;
  for (const ScheduleInfo* info : AllSchedules()) {
    INFO(info->name);
    CHECK(previous < info->name);
    previous = info->name;
    CHECK_FALSE(info->summary.empty());
    CHECK_FALSE(info->source.empty());
    CHECK(info->build != nullptr);
    for (const Claim& claim : info->claims) {
      CHECK_FALSE(claim.formula.empty());
      CHECK_FALSE(claim.source.empty());
    }
  }
}

TEST_CASE("registry: PyTorch's names, and ours first", "[schedule]") {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"1f1b", "1f1b"},
      {"1F1B", "1f1b"},
      {"Schedule1F1B", "1f1b"},
      {"GPipe", "gpipe"},
      {"ScheduleGPipe", "gpipe"},
      {"loopedbfs", "looped-bfs"},
      {"ScheduleLoopedBFS", "looped-bfs"},
      {"INTERLEAVED1F1B", "interleaved-1f1b"},
      {"ScheduleInterleavedZeroBubble", "interleaved-zb"},
  };
  for (const auto& [name, ours] : names) {
    INFO(name);
    const auto match = FindSchedule(name);
    REQUIRE(match.ok());
    CHECK(match->info->name == ours);
  }
  CHECK(FindSchedule("interleaved-1f1b")->implied.empty());
  CHECK(FindSchedule("Interleaved1F1B")->implied.at("rule") == "torch");
}

TEST_CASE("registry: an unknown name gets the nearest one", "[schedule]") {
  CHECK_THAT(std::string(FindSchedule("zb-h11").status().message()),
             Catch::Contains("unknown schedule 'zb-h11'; did you mean "
                             "'zb-h1'?"));
}

TEST_CASE("registry: impossible sizes name field, value and what is allowed",
          "[schedule]") {
  CHECK(Error("1f1b", Sizes(4, 2, 8)) ==
        "strategy.vpp: 2 is not allowed; allowed: 1 (schedule 1f1b)");
  CHECK(Error("gpipe", Sizes(0, 1, 8)) ==
        "strategy.pp: 0 is not allowed; allowed: 1..65536");
  CHECK(Error("gpipe", Sizes(4, 1, 0)) ==
        "strategy.microbatches: 0 is not allowed; allowed: 1..2147483647");
  CHECK_THAT(Error("gpipe", Sizes(4, 1, 2147483647)),
             Catch::Contains("allowed: at most 715827882"));
  CHECK_THAT(Error("zb-h1", Sizes(4, 1, 7)),
             Catch::Contains("strategy.microbatches: 7 is not allowed; "
                             "allowed: at least 8 (2*pp"));
  CHECK_THAT(Error("zb-h2", Sizes(4, 1, 7)),
             Catch::Contains("allowed: at least 8 (2*pp"));
  CHECK_THAT(Error("interleaved-1f1b", Sizes(4, 2, 10)),
             Catch::Contains("strategy.microbatches: 10 is not allowed; "
                             "allowed: 8 or 12, the nearest"));
  CHECK_THAT(Error("Interleaved1F1B", Sizes(3, 2, 14)),
             Catch::Contains("allowed: 12 or 15, the nearest"));
  CHECK_THAT(Error("interleaved-zb", Sizes(3, 2, 14)),
             Catch::Contains("strategy.microbatches: 14 is not allowed; "
                             "allowed: 12 or 15, the nearest"));
  CHECK(Error("2bp", Sizes(4, 2, 8)) ==
        "strategy.vpp: 2 is not allowed; allowed: 1 (schedule 2bp)");
  CHECK(Error("terapipe", Sizes(4, 2, 8)) ==
        "strategy.vpp: 2 is not allowed; allowed: 1 (schedule terapipe)");
  ScheduleParams three_slices = Sizes(4, 2, 8);
  three_slices.slices = 3;
  CHECK_THAT(Error("slimpipe", three_slices),
             Catch::Contains("strategy.slices: 3 is not allowed; allowed: 4, "
                             "the nearest"));
  ScheduleParams sliced = Sizes(2, 1, 4);
  sliced.slices = 2;
  CHECK(Error("gpipe", sliced) ==
        "strategy.slices: 2 is not allowed; allowed: 1 (schedule gpipe)");
  for (const char* name :
       {"interleaved-zb", "gis", "gis-h", "po-h", "po-f", "2bp", "zeropp"}) {
    CHECK(Error(name, sliced) ==
          absl::StrCat("strategy.slices: 2 is not allowed; allowed: 1 "
                       "(schedule ",
                       name, ")"));
  }
  sliced = Sizes(4, 2, 8);
  sliced.slices = 6;
  CHECK_THAT(Error("slimpipe", sliced), Catch::Contains("allowed: 4 or 8"));
  sliced.slices = 3;
  CHECK_THAT(Error("seq1f1b", sliced),
             Catch::Contains("strategy.slices: 3 is not allowed; allowed: 2 or "
                             "4, the nearest"));
  sliced.slices = 5;
  CHECK_THAT(Error("seq1f1b", sliced), Catch::Contains("allowed: 4, the"));
  sliced.slices = 2;
  sliced.microbatches = 7;
  CHECK_THAT(Error("seq1f1b", sliced),
             Catch::Contains("strategy.microbatches: 7 is not allowed; "
                             "allowed: 6 or 8, the nearest"));
  sliced = Sizes(2, 1, 4);
  sliced.slices = 300;
  CHECK_THAT(Error("terapipe", sliced),
             Catch::Contains("strategy.slices: 300 is not allowed; allowed: "
                             "1..256"));
}

TEST_CASE("registry: own parameters are checked", "[schedule]") {
  ScheduleParams params = Sizes(4, 2, 10);
  params.own = {{"group-size", "5"}};
  CHECK(BuildSchedule("interleaved-1f1b", params).ok());
  params.own = {{"group-size", "11"}};
  CHECK(Error("interleaved-1f1b", params) ==
        "schedule.params.group-size: 11 is not allowed; allowed: an integer "
        "in 4..10");
  params.own = {{"group-size", "4x"}};
  CHECK_THAT(Error("interleaved-1f1b", params),
             Catch::Contains("group-size: 4x is not allowed"));
  params.own = {{"groupsize", "5"}};
  CHECK_THAT(Error("interleaved-1f1b", params),
             Catch::Contains("did you mean 'group-size'?"));
  params.own = {{"rule", "mega"}};
  CHECK(Error("interleaved-1f1b", params) ==
        "schedule.params.rule: mega is not allowed; allowed: megatron, "
        "megatron-23.08, torch");
  params.own = {{"rule", "torch"}};
  CHECK_THAT(Error("gpipe", params),
             Catch::Contains("schedule gpipe has no parameters"));
}

TEST_CASE("registry: own parameters of sliced and unit schedules are checked",
          "[schedule]") {
  ScheduleParams params = Sizes(4, 2, 10);
  params.own = {{"unit", "11"}};
  CHECK(Error("zeropp", params) ==
        "schedule.params.unit: 11 is not allowed; allowed: an integer in "
        "1..10");
  params = Sizes(4, 1, 10);
  params.own = {{"base", "zb-h1"}};
  CHECK(Error("2bp", params) ==
        "schedule.params.base: zb-h1 is not allowed; allowed: 1f1b, gpipe");
  params.own = {{"attention", "1.5"}};
  CHECK(Error("terapipe", params) ==
        "schedule.params.attention: 1.5 is not allowed; allowed: a number in "
        "0..1");
  params.slices = 4;
  params.own = {{"balance", "flops"}};
  CHECK_THAT(Error("seq1f1b", params),
             Catch::Contains("schedule.params.balance: flops is not allowed; "
                             "allowed: uniform, or a sequence"));
  params.own = {{"balance", "flops"}, {"tokens", "3"}};
  CHECK_THAT(Error("seq1f1b", params),
             Catch::Contains("strategy.slices: 4 is not allowed; allowed: "
                             "1..3"));
  params.own = {{"balance", "flops"}, {"tokens", "64"}, {"attention", "x"}};
  CHECK_THAT(Error("seq1f1b", params),
             Catch::Contains("attention: x is not allowed"));
}

TEST_CASE("registry: zeropp takes the largest unit that fits", "[schedule]") {
  ScheduleParams params = Sizes(4, 2, 14);
  params.max_activations = 100;
  const auto free = BuildSchedule("zeropp", params);
  params.max_activations = 5;
  const auto limited = BuildSchedule("zeropp", params);
  REQUIRE(free.ok());
  REQUIRE(limited.ok());
  params.own = {{"unit", "5"}};
  const auto five = BuildSchedule("zeropp", params);
  params.own = {{"unit", "6"}};
  const auto six = BuildSchedule("zeropp", params);
  params.own = {{"unit", "7"}};
  const auto seven = BuildSchedule("zeropp", params);
  CHECK(ScheduleToText(*free) == ScheduleToText(*seven));
  CHECK(ScheduleToText(*limited) == ScheduleToText(*five));
  const auto peak = [](const Schedule& schedule) {
    const std::vector<double> peaks = PeakActivations(schedule, 1);
    return *std::max_element(peaks.begin(), peaks.end());
  };
  CHECK(peak(*five) <= 5);
  CHECK(peak(*six) > 5);
}

TEST_CASE("registry: a parameter that is given wins over the implied one",
          "[schedule]") {
  ScheduleParams params = Sizes(2, 1, 4);
  const auto implied = BuildSchedule("Interleaved1F1B", params);
  params.own = {{"rule", "megatron"}};
  const auto given = BuildSchedule("Interleaved1F1B", params);
  REQUIRE(implied.ok());
  REQUIRE(given.ok());
  // PyTorch runs two more warm-up passes a rank behind, Megatron one.
  CHECK(PassToString(*implied, implied->order(0)[2]) == "F2");
  CHECK(PassToString(*given, given->order(0)[2]) == "BW0");
}

TEST_CASE("registry: a placement is that of what is built", "[schedule]") {
  for (const ScheduleInfo* info : AllSchedules()) {
    int built = 0;
    for (const int vpp : {1, 2, 3, 4}) {
      ScheduleParams params;
      params.pp = 4;
      params.vpp = vpp;
      params.microbatches = 8;
      const absl::StatusOr<Placement> placement =
          PlacementOf(info->name, params);
      INFO(info->name << ", vpp " << vpp);
      REQUIRE(placement.ok());
      // Also where the schedule cannot have that many chunks.
      CHECK(placement->stages() == 4 * vpp);
      const absl::StatusOr<Schedule> schedule =
          BuildSchedule(info->name, params);
      CHECK(schedule.status().code() != absl::StatusCode::kInternal);
      if (!schedule.ok()) continue;
      ++built;
      for (int stage = 0; stage < schedule->stages(); ++stage) {
        CHECK(placement->RankOf(stage) == schedule->placement.RankOf(stage));
      }
    }
    CHECK(built > 0);
  }
}

}  // namespace
}  // namespace pipewright::registry_test
