// Bidirectional and wave schedules: their variants, what they refuse, and
// closed forms that the claims of the registry do not reach.
#include <catch2/catch.hpp>

#include "absl/strings/str_cat.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/replay.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"

namespace pipewright::bidirectional_test {
namespace {

using Own = std::map<std::string, std::string>;

ScheduleParams Params(int pp, int vpp, int microbatches, const Own& own = {}) {
  ScheduleParams params;
  params.pp = pp;
  params.vpp = vpp;
  params.microbatches = microbatches;
  params.own = own;
  return params;
}

std::string Error(absl::string_view name, const ScheduleParams& params) {
  const auto schedule = BuildSchedule(name, params);
  REQUIRE(schedule.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(schedule.status().message());
}

// Claims of `name` at these parameters against a replay and the order's peaks.
int CheckClaims(absl::string_view name, const ScheduleParams& params) {
  const auto schedule = BuildSchedule(name, params);
  REQUIRE(schedule.ok());
  REQUIRE(VerifySchedule(*schedule).ok());
  const auto times = Replay(*schedule, params.costs);
  REQUIRE(times.ok());
  const double work = params.microbatches * params.costs.work();
  int compared = 0;
  for (const Claim& claim : FindSchedule(name)->info->claims) {
    if (!claim.domain(params)) continue;
    ++compared;
    INFO(name << " pp " << params.pp << " microbatches " << params.microbatches
              << ": " << claim.formula);
    if (claim.metric == Claim::Metric::kPeakActivations) {
      const auto peaks = PeakActivations(*schedule, 1);
      for (int rank = 0; rank < params.pp; ++rank) {
        CHECK(peaks[rank] <= claim.value(params, rank));
      }
      continue;
    }
    const double span = claim.metric == Claim::Metric::kBubbleGlobal
                            ? times->span_global
                            : times->span_per_rank;
    CHECK(span - work == Approx(claim.value(params, 0)).epsilon(1e-12));
  }
  return compared;
}

TEST_CASE("bidirectional: closed forms of all variants", "[schedule]") {
  for (const int pp : {2, 4, 6, 8, 16}) {
    for (const int units : {1, 2, 3, 5}) {
      for (const double backward : {0.5, 1.0, 1.5, 2.0, 3.0, 5.0}) {
        ScheduleParams params = Params(pp, 2, units * pp);
        params.costs.forward = 4;
        params.costs.backward_input = 2 * backward;
        params.costs.backward_weight = 2 * backward;
        CHECK(CheckClaims("bitpipe", params) == 3);
        params.own = {{"concatenation", "figure"}};
        CHECK(CheckClaims("bitpipe", params) == 3);
        params.own = {{"sync", "end"}};
        CHECK(CheckClaims("bitpipe", params) == 3);
        params.own = {};
        params.vpp = 1;
        CHECK(CheckClaims("chimera", params) == 3);
      }
    }
    for (const int extra : {0, 2, 6}) {
      for (const char* pair : {"joint", "dependencies"}) {
        const Own own = {{"pair", pair}};
        CHECK(CheckClaims("dualpipe", Params(pp, 1, 2 * pp + extra, own)) == 3);
        CHECK(CheckClaims("dualpipe-v", Params(pp, 2, 2 * pp + extra, own)) ==
              3);
      }
    }
  }
}

TEST_CASE("bidirectional: sizes that do not fit name the nearest that do",
          "[schedule]") {
  CHECK(Error("bitpipe", Params(3, 2, 12)) ==
        "strategy.pp: 3 is not allowed; allowed: 2 or 4, the nearest "
        "(schedule bitpipe: even, and microbatches a multiple of it)");
  CHECK(Error("bitpipe", Params(4, 2, 6)) ==
        "strategy.microbatches: 6 is not allowed; allowed: 4 or 8, the "
        "nearest (schedule bitpipe: a multiple of pp = 4)");
  CHECK_THAT(Error("bitpipe", Params(4, 2, 3)),
             Catch::Contains("allowed: 4, the nearest"));
  CHECK_THAT(Error("bitpipe", Params(3, 2, 7)),
             Catch::Contains("allowed: 2 or 4, the nearest"));
  CHECK(Error("bitpipe", Params(4, 1, 8)) ==
        "strategy.vpp: 1 is not allowed; allowed: 2 (schedule bitpipe)");
  CHECK_THAT(Error("bitpipe", Params(4, 2, 8, {{"concatenation", "tight"}})),
             Catch::Contains("allowed: released, figure"));
  CHECK_THAT(Error("bitpipe", Params(4, 2, 8, {{"sync", "late"}})),
             Catch::Contains("allowed: eager, end"));
  CHECK_THAT(Error("chimera", Params(1, 1, 8)),
             Catch::Contains("strategy.pp: 1 is not allowed; allowed: 2, the "
                             "nearest"));
  CHECK_THAT(Error("chimera", Params(8, 1, 12)),
             Catch::Contains("allowed: 8 or 16, the nearest"));
  CHECK(Error("dualpipe", Params(5, 1, 12)) ==
        "strategy.pp: 5 is not allowed; allowed: 4 or 6, the nearest "
        "(schedule dualpipe: even, and at most microbatches/2)");
  CHECK_THAT(Error("dualpipe", Params(7, 1, 12)),
             Catch::Contains("allowed: 6, the nearest"));
  CHECK_THAT(Error("dualpipe", Params(4, 1, 6)),
             Catch::Contains("strategy.microbatches: 6 is not allowed; "
                             "allowed: 8, the nearest (schedule dualpipe: "
                             "even, and at least 2*pp = 8)"));
  CHECK_THAT(Error("dualpipe", Params(4, 1, 11)),
             Catch::Contains("allowed: 10 or 12, the nearest"));
  CHECK_THAT(Error("dualpipe-v", Params(4, 2, 7)),
             Catch::Contains("strategy.microbatches: 7 is not allowed; "
                             "allowed: 8, the nearest"));
  CHECK_THAT(Error("hanayo", Params(4, 3, 8)),
             Catch::Contains("strategy.vpp: 3 is not allowed; allowed: 2 or "
                             "4, the nearest"));
}

// What a message names must work.
TEST_CASE("bidirectional: the sizes named are taken", "[schedule]") {
  int tried = 0;
  for (const char* name : {"bitpipe", "chimera", "dualpipe", "dualpipe-v"}) {
    const int vpp = FindSchedule(name)->info->default_vpp;
    for (int pp = 1; pp <= 9; ++pp) {
      for (int microbatches = 4; microbatches <= 40; microbatches += 4) {
        ScheduleParams params = Params(pp, vpp, microbatches);
        const auto refused = BuildSchedule(name, params);
        if (refused.ok()) continue;
        const std::string message(refused.status().message());
        const size_t at = message.find("allowed: ") + 9;
        for (const size_t from : {at, message.find(" or ", at) + 4}) {
          if (from < at || from > message.find(',', at)) continue;
          const int value = std::stoi(message.substr(from));
          ScheduleParams fixed = params;
          (message.find("strategy.pp") == 0 ? fixed.pp : fixed.microbatches) =
              value;
          INFO(name << " " << message);
          CHECK(BuildSchedule(name, fixed).ok());
          ++tried;
        }
      }
    }
  }
  CHECK(tried > 100);
}

// (PP/2-1)(F&BW + BW - 3W) with a time of its own for the pair, on the ranks
// next to the turn; README of deepseek-ai/DualPipe.
TEST_CASE("dualpipe: a pair of its own time", "[schedule]") {
  struct Case {
    const char* name;
    int stages, pp, vpp, rank;
  };
  for (const Case& run :
       {Case{"dualpipe", 8, 8, 1, 3}, Case{"dualpipe-v", 8, 4, 2, 3}}) {
    for (const double factor : {1.0, 0.75, 1.25}) {
      for (const double weight : {4.0, 2.0}) {
        INFO(run.name << " factor " << factor << " W " << weight);
        ScheduleParams params = Params(run.pp, run.vpp, 20);
        params.costs = {.forward = 4.0 * run.vpp,
                        .backward_input = 4.0 * run.vpp,
                        .backward_weight = weight * run.vpp,
                        .pair_factor = factor};
        const auto schedule = BuildSchedule(run.name, params);
        REQUIRE(schedule.ok());
        const auto times = Replay(*schedule, params.costs);
        REQUIRE(times.ok());
        const double single = 4 + 4 + weight;
        double busy = 20 * single * run.vpp;
        for (const Pass pass : schedule->order(run.rank)) {
          if (pass.joint_with_next()) busy -= single * (1 - factor);
        }
        CHECK(times->span_global - busy ==
              Approx((run.stages / 2 - 1) *
                     (factor * single + 4 + weight - 3 * weight)));
      }
    }
  }
}

TEST_CASE("hanayo: a limit on memory is kept", "[schedule]") {
  for (const int vpp : {2, 4, 6}) {
    for (const double limit : {1.0, 2.5, 4.0}) {
      ScheduleParams params = Params(4, vpp, 12);
      params.max_activations = limit;
      const auto schedule = BuildSchedule("hanayo", params);
      REQUIRE(schedule.ok());
      CHECK(VerifySchedule(*schedule).ok());
      for (const double peak : PeakActivations(*schedule, 1)) {
        CHECK(peak <= limit);
      }
    }
  }
}

TEST_CASE("bidirectional: orders take no more memory than their passes",
          "[schedule]") {
  for (const char* name :
       {"bitpipe", "chimera", "dualpipe", "dualpipe-v", "hanayo"}) {
    const int vpp = FindSchedule(name)->info->default_vpp;
    const auto schedule = BuildSchedule(name, Params(6, vpp, 36));
    REQUIRE(schedule.ok());
    INFO(name);
    for (const auto& order : schedule->orders) {
      CHECK(order->capacity() == order->size());
    }
  }
}

TEST_CASE("bidirectional: orders survive the text form", "[schedule]") {
  for (const char* name : {"bitpipe", "chimera", "dualpipe", "dualpipe-v"}) {
    const int vpp = FindSchedule(name)->info->default_vpp;
    const auto schedule = BuildSchedule(name, Params(4, vpp, 8));
    REQUIRE(schedule.ok());
    for (const std::string& form :
         {ScheduleToText(*schedule), ScheduleToJson(*schedule)}) {
      const auto read = ParseSchedule(form, "form");
      INFO(form);
      REQUIRE(read.ok());
      CHECK(ScheduleToText(*read) == ScheduleToText(*schedule));
    }
  }
}

}  // namespace
}  // namespace pipewright::bidirectional_test
