// What the report says of collectives of gradients, and that asking for the
// fastest of them is no fault where it is the ring.
#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "sim/base/status.h"
#include "sim/report/report.h"
#include "sim/run/simulated_run.h"
#include "tests/support/json.h"

namespace pipewright::collectives_run_test {
namespace {

absl::StatusOr<SimulatedRun> RunOf(const std::string& gradient_bytes,
                                   const std::string& collectives, int nodes) {
  PW_ASSIGN_OR_RETURN(
      const RunConfig config,
      ReadConfig("", "",
                 {{{"system.preset", "dgx-h100", "test"},
                   {"system.nodes", std::to_string(nodes), "test"},
                   {"schedule.name", "1f1b", "test"},
                   {"strategy.pp", "2", "test"},
                   {"strategy.dp", std::to_string(4 * nodes), "test"},
                   {"strategy.microbatches", "2", "test"},
                   {"strategy.data_parallel", "ddp", "test"},
                   {"strategy.collectives", collectives, "test"},
                   {"costs.uniform.forward", "1ms", "test"},
                   {"costs.uniform.backward", "2ms", "test"},
                   {"costs.hop_bytes", "1MiB", "test"},
                   {"costs.gradient_bytes", gradient_bytes, "test"}}}));
  RunContext context;
  return Simulate(config, &context);
}

TEST_CASE("run: the report tells how each collective runs", "[run]") {
  std::set<std::string> chosen;
  for (const char* bytes : {"4KiB", "1MiB", "4MiB", "8GiB"}) {
    const auto run = RunOf(bytes, "fastest", 8);
    INFO(bytes << " " << run.status());
    REQUIRE(run.ok());
    CHECK(run->prepared.unused.empty());
    const Report* const report = &run->report;
    REQUIRE(report->collectives.size() == 2);  // a group for each rank
    const auto json = testing::Json::parse(ReportToJson(*report));
    for (const int rank : {0, 1}) {
      const CollectiveReport& row = report->collectives[rank];
      CHECK(row.ranks == std::vector<int>{rank});
      CHECK(row.members == 32);
      CHECK(row.kind == "all-reduce");
      CHECK(row.seconds > 0);
      chosen.insert(row.algorithm);
      CHECK(json["collectives"][rank]["algorithm"] == row.algorithm);
      CHECK(json["collectives"][rank]["bytes"] == row.bytes);
      CHECK(absl::StrContains(ReportToText(*report), row.algorithm));
    }
  }
  CHECK(chosen.size() >= 2);
  CHECK(chosen.count("ring") == 1);
  const auto rings = RunOf("4MiB", "ring", 8);
  REQUIRE(rings.ok());
  CHECK(rings->report.collectives.empty());
}

TEST_CASE("run: a choice of collectives changes nothing on one node", "[run]") {
  const auto ring = RunOf("8GiB", "ring", 1);
  REQUIRE(ring.ok());
  for (const char* collectives : {"tree", "hierarchical", "fastest"}) {
    const auto one_node = RunOf("8GiB", collectives, 1);
    INFO(collectives << " " << one_node.status());
    REQUIRE(one_node.ok());
    CHECK(one_node->report.iteration_s == ring->report.iteration_s);
  }
}

}  // namespace
}  // namespace pipewright::collectives_run_test
