// What holds for every registered schedule at every shape that it accepts.
#include <catch2/catch.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/memory/activations.h"
#include "sim/schedule/registry.h"
#include "sim/schedule/text.h"
#include "sim/schedule/verify.h"
#include "tests/support/legal_values.h"

namespace pipewright::property_test {
namespace {

using testing::IllegalValuesOf;
using testing::LegalValuesOf;

using Visitor = std::function<void(const ScheduleInfo&, const ScheduleParams&,
                                   const Schedule&)>;

std::string Describe(const ScheduleInfo& info, const ScheduleParams& params) {
  std::string text = absl::StrCat(
      info.name, " pp ", params.pp, " vpp ", params.vpp, " microbatches ",
      params.microbatches, params.costs.given ? " with costs" : "");
  for (const auto& [key, value] : params.own) {
    absl::StrAppend(&text, " ", key, "=", value);
  }
  return text;
}

// A refusal says what is allowed, and of what.
void CheckRefused(const absl::Status& status) {
  INFO(status);
  CHECK(status.code() == absl::StatusCode::kInvalidArgument);
  CHECK_THAT(std::string(status.message()), Catch::Contains("allowed"));
  CHECK(PartsOf(status).field.has_value());
}

// Calls `visit` with each schedule at each shape that it accepts; a refusal
// must say what is allowed.
void ForEachShape(const Visitor& visit) {
  for (const ScheduleInfo* info : AllSchedules()) {
    int accepted = 0;
    for (const int pp : {1, 2, 3, 4, 8}) {
      for (const int vpp : {1, 2, 4}) {
        for (const int microbatches : {1, 2, 5, 8, 12, 16, 17, 32}) {
          ScheduleParams params;
          params.pp = pp;
          params.vpp = vpp;
          params.microbatches = microbatches;
          params.costs.held_until_weight = 0.375;
          INFO(Describe(*info, params));
          const auto schedule = BuildSchedule(info->name, params);
          if (!schedule.ok()) {
            CheckRefused(schedule.status());
            continue;
          }
          ++accepted;
          visit(*info, params, *schedule);
        }
      }
    }
    INFO(info->name);
    CHECK(accepted > 0);
  }
}

// The same for each legal value of each of its own parameters, one at a time,
// without costs and with them. No value is refused at all shapes.
void ForEachOwnValue(const Visitor& visit) {
  for (const ScheduleInfo* info : AllSchedules()) {
    std::map<std::string, int> accepted;
    for (const int pp : {1, 2, 3, 4}) {
      for (const int slices : {1, 2, 4}) {
        for (const int microbatches : {1, 4, 6, 9, 12, 16}) {
          // Number of chunks, and whether costs are given.
          std::set<std::pair<int, bool>> kinds = {{info->default_vpp, false},
                                                  {info->default_vpp, true}};
          if (slices == 1) kinds.insert({{1, true}, {2, true}, {3, true}});
          for (const auto& [vpp, given] : kinds) {
            ScheduleParams params;
            params.pp = pp;
            params.vpp = vpp;
            params.microbatches = microbatches;
            params.slices = slices;
            params.costs.held_until_weight = 0.375;
            params.sequence = {4096, 0.1};
            if (given) {
              params.costs.forward = 3;
              params.costs.backward_input = 5;
              params.costs.backward_weight = 7;
              params.costs.hop = 2;
              params.costs.given = true;
            }
            for (const ParamInfo& own : info->params) {
              for (const std::string& value : LegalValuesOf(own, params)) {
                params.own = {{own.key, value}};
                INFO(Describe(*info, params) << " slices " << slices);
                int& times = accepted[absl::StrCat(own.key, "=", value)];
                const auto schedule = BuildSchedule(info->name, params);
                times += schedule.ok();
                if (schedule.ok()) {
                  visit(*info, params, *schedule);
                } else {
                  CheckRefused(schedule.status());
                }
              }
            }
          }
        }
      }
    }
    for (const auto& [value, times] : accepted) {
      INFO(info->name << " " << value);
      CHECK(times > 0);
    }
  }
}

void ForEach(const Visitor& visit) {
  ForEachShape(visit);
  ForEachOwnValue(visit);
}

TEST_CASE("schedules: each is legal, of the asked sizes, and repeatable",
          "[schedule]") {
  ForEach([](const ScheduleInfo& info, const ScheduleParams& params,
             const Schedule& schedule) {
    CHECK(VerifySchedule(schedule) == absl::OkStatus());
    CHECK(schedule.name == info.name);
    CHECK(schedule.pp() == params.pp);
    CHECK(schedule.vpp() == params.vpp);
    CHECK(schedule.microbatches == params.microbatches);
    CHECK(ScheduleToText(*BuildSchedule(info.name, params)) ==
          ScheduleToText(schedule));
  });
}

TEST_CASE("schedules: each pass stands exactly once", "[schedule]") {
  ForEach([](const ScheduleInfo&, const ScheduleParams& params,
             const Schedule& schedule) {
    std::map<std::string, int> counts;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      for (const Pass pass : schedule.order(rank)) {
        if (!IsComputePass(pass.kind())) continue;
        ++counts[absl::StrCat(rank, ":", PassToString(schedule, pass))];
      }
    }
    int wrong = 0;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
      const auto count = [&](PassKind kind, int microbatch, int chunk,
                             int slice, int replica) {
        const auto found = counts.find(absl::StrCat(
            rank, ":",
            PassToString(schedule,
                         Pass(kind, microbatch, chunk, slice, replica))));
        return found == counts.end() ? 0 : found->second;
      };
      for (int replica = 0; replica < schedule.directions; ++replica) {
        for (int chunk = 0; chunk < params.vpp; ++chunk) {
          for (int microbatch = 0;
               microbatch < schedule.microbatches_per_direction();
               ++microbatch) {
            for (int slice = 0; slice < schedule.slices; ++slice) {
              const auto of = [&](PassKind kind) {
                return count(kind, microbatch, chunk, slice, replica);
              };
              const int full = of(PassKind::kBackwardFull);
              wrong += of(PassKind::kForward) != 1 ||
                       full + of(PassKind::kBackwardInput) != 1 ||
                       full + of(PassKind::kBackwardWeight) != 1;
            }
          }
        }
      }
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("schedules: published peaks hold in their domain", "[schedule]") {
  std::map<std::string, int> compared;
  ForEach([&](const ScheduleInfo& info, const ScheduleParams& given,
              const Schedule&) {
    for (const double held : {0.0, 0.375, 1.0}) {
      ScheduleParams params = given;
      params.costs.held_until_weight = held;
      // A planner's order depends on it.
      const auto schedule = BuildSchedule(info.name, params);
      REQUIRE(schedule.ok());
      const std::vector<double> peaks = PeakActivations(*schedule, held);
      REQUIRE(static_cast<int>(peaks.size()) == params.pp);
      for (int rank = 0; rank < params.pp; ++rank) {
        CHECK(peaks[rank] > 0);
        CHECK(peaks[rank] <= params.microbatches);
        for (const Claim& claim : info.claims) {
          if (claim.metric != Claim::Metric::kPeakActivations ||
              !claim.domain(params)) {
            continue;
          }
          ++compared[info.name];
          INFO(info.name << " held " << held << " rank " << rank << ": "
                         << claim.formula);
          const double value = claim.value(params, rank);
          if (claim.sense == Claim::Sense::kExact) {
            CHECK(peaks[rank] == Approx(value).epsilon(1e-12));
          } else {
            CHECK(peaks[rank] <= value * (1 + 1e-12));
          }
        }
      }
    }
  });
  for (const ScheduleInfo* info : AllSchedules()) {
    for (const Claim& claim : info->claims) {
      if (claim.metric != Claim::Metric::kPeakActivations) continue;
      INFO(info->name);
      CHECK(compared[info->name] > 0);
    }
  }
}

TEST_CASE("schedules: values that no row lists are refused by their key",
          "[schedule]") {
  for (const ScheduleInfo* info : AllSchedules()) {
    std::map<std::string, int> built;  // without the parameter
    for (const int pp : {2, 4}) {
      for (const int microbatches : {8, 16}) {
        ScheduleParams params;
        params.pp = pp;
        params.vpp = info->default_vpp;
        params.microbatches = microbatches;
        for (const ParamInfo& own : info->params) {
          params.own.clear();
          if (!BuildSchedule(info->name, params).ok()) continue;
          ++built[own.key];
          for (const std::string& value : IllegalValuesOf(own, params)) {
            params.own = {{own.key, value}};
            INFO(Describe(*info, params));
            const absl::Status status =
                BuildSchedule(info->name, params).status();
            CheckRefused(status);
            CHECK(PartsOf(status).field ==
                  absl::StrCat("schedule.params.", own.key));
          }
        }
      }
    }
    INFO(info->name);
    CHECK(built.size() == info->params.size());
  }
}

TEST_CASE("schedules: orders take no more memory than their passes",
          "[schedule]") {
  for (const char* name : {"gpipe", "1f1b", "interleaved-1f1b", "looped-bfs",
                           "zb-h1", "zb-h2", "zb-auto", "zb-v"}) {
    INFO(name);
    ScheduleParams params;
    params.pp = 4;
    params.vpp = (*FindSchedule(name)).info->default_vpp;
    params.microbatches = 36;
    const auto schedule = BuildSchedule(name, params);
    REQUIRE(schedule.ok());
    for (const auto& order : schedule->orders) {
      CHECK(order->capacity() == order->size());
    }
  }
}

}  // namespace
}  // namespace pipewright::property_test
