#include "sim/schedule/registry.h"

#include <catch2/catch.hpp>

namespace pipewright {
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
  ScheduleParams sliced = Sizes(2, 1, 4);
  sliced.slices = 2;
  CHECK(Error("gpipe", sliced) ==
        "strategy.slices: 2 is not allowed; allowed: 1 (schedule gpipe)");
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

}  // namespace
}  // namespace pipewright
