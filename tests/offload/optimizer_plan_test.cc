// Who steps which subgroup, and what moves for it, against
// tests/oracle/dos_schedule_cases.json.gz.
#include "sim/offload/optimizer_plan.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

#include "tests/support/json.h"
#include "tests/support/oracle.h"

namespace pipewright::optimizer_plan_test {
namespace {

using testing::Json;

std::string NameOf(SubgroupStep step) {
  switch (step) {
    case SubgroupStep::kHost:
      return "CPU";
    case SubgroupStep::kHostTriggers:
      return "CPU+PREFETCH";
    default:
      return "GPU";
  }
}

int IndexOf(const Json& value) {
  return value.is_null() ? -1 : value.get<int>();
}

TEST_CASE("optimizer plan: every k-th subgroup, as the oracle has it",
          "[offload]") {
  const Json oracle = testing::LoadOracle("dos_schedule_cases");
  int cases = 0;
  for (const Json& each : oracle.at("decisions")) {
    const int subgroups = each.at("nsub");
    INFO(subgroups << " subgroups, stride " << each.at("k"));
    const SubgroupPlan plan = PlanStrides(subgroups, each.at("k"), subgroups);
    REQUIRE(plan.steps.size() == each.at("decision").size());
    for (size_t index = 0; index < plan.steps.size(); ++index) {
      CHECK(NameOf(plan.steps[index]) == each.at("decision")[index]);
    }
    CHECK(plan.Count(SubgroupStep::kDevice) == each.at("n_gpu"));
    const Json& transfers = each.at("transfers");
    REQUIRE(plan.transfers.size() == transfers.size());
    for (size_t index = 0; index < transfers.size(); ++index) {
      CHECK(plan.transfers[index].at == transfers[index].at("at"));
      CHECK(plan.transfers[index].flush ==
            IndexOf(transfers[index].at("flush_prev_gpu")));
      CHECK(plan.transfers[index].prefetch ==
            IndexOf(transfers[index].at("prefetch_next_gpu")));
    }
    ++cases;
  }
  CHECK(cases == 64);
}

TEST_CASE("optimizer plan: a static ratio, as the oracle has it", "[offload]") {
  int cases = 0;
  const Json oracle = testing::LoadOracle("dos_schedule_cases");
  for (const Json& each : oracle.at("twinflow")) {
    const int subgroups = each.at("nsub");
    const SubgroupPlan plan = PlanRatio(subgroups, each.at("ratio"));
    CHECK(HostSubgroups(subgroups, each.at("ratio")) == each.at("n_cpu"));
    CHECK(plan.Count(SubgroupStep::kHost) == each.at("n_cpu"));
    for (const int id : each.at("cpu_ids").get<std::vector<int>>()) {
      CHECK(plan.steps[id] == SubgroupStep::kHost);
    }
    ++cases;
  }
  CHECK(cases == 24);
}

// Check D8 of the reference: what visits the device is fetched once and
// flushed once, before the next forward, also where no trigger follows.
TEST_CASE("optimizer plan: each visitor comes once and goes once",
          "[offload]") {
  int behind = 0;
  for (int subgroups = 1; subgroups <= 40; ++subgroups) {
    for (int stride = 1; stride <= 12; ++stride) {
      for (const int on_host : {subgroups, subgroups / 2}) {
        INFO(subgroups << " " << stride << " " << on_host);
        const SubgroupPlan plan = PlanStrides(subgroups, stride, on_host);
        std::set<int> fetched;
        std::set<int> flushed;
        int last = -1;
        for (const SubgroupTransfer& transfer : plan.transfers) {
          CHECK(transfer.flush < transfer.at);
          if (transfer.flush > last)
            CHECK(flushed.insert(transfer.flush).second);
          last = transfer.flush;
          if (transfer.prefetch < 0) continue;
          CHECK(transfer.prefetch > transfer.at);
          CHECK(fetched.insert(transfer.prefetch).second);
        }
        if (plan.last_flush >= 0) {
          ++behind;
          CHECK(flushed.insert(plan.last_flush).second);
        }
        std::set<int> visitors;
        for (int index = 0; index < subgroups; ++index) {
          if (plan.steps[index] != SubgroupStep::kDevice) continue;
          visitors.insert(index);
          CHECK(index < on_host);
        }
        CHECK(fetched == visitors);
        CHECK(flushed == visitors);
      }
    }
  }
  CHECK(behind > 50);
}

TEST_CASE("optimizer plan: the stride that its model gives", "[offload]") {
  // X = 16 / B; 1 + X U, by hand.
  CHECK(BestStride(1e9, 16e9) == 2);
  CHECK(BestStride(1.01e9, 16e9) == 3);
  CHECK(BestStride(3e9, 16e9) == 4);
  CHECK(BestStride(1, 1e12) == 2);
  CHECK(BestStride(1e9, 1e-300) == kMostSubgroups);
  // The fits of the reference (2.3) for both machines, as published: 2.
  CHECK(BestStride(0.93e9, 16.6e9) == 2);
  CHECK(BestStride(2.33e9, 48e9) == 2);
}

TEST_CASE("optimizer plan: how many subgroups", "[offload]") {
  CHECK(NumSubgroups(1e9, 1e8) == 10);
  CHECK(NumSubgroups(1e9 + 0.05, 1e8) == 10);  // rounding
  CHECK(NumSubgroups(1.01e9, 1e8) == 11);
  CHECK(NumSubgroups(0, 1e8) == 1);
  // A size that was divided out comes back.
  for (int count = 1; count <= 100; ++count) {
    CHECK(NumSubgroups(2.829e9, 2.829e9 / count) == count);
  }
}

}  // namespace
}  // namespace pipewright::optimizer_plan_test
