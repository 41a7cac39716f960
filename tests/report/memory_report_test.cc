#include "sim/report/memory_report.h"

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "sim/base/json.h"
#include "sim/report/memory_svg.h"
#include "tests/support/memory_example.h"
#include "tests/support/xml_check.h"

namespace pipewright::memory_report_test {
namespace {

using testing::Count;
using testing::MemoryExample;
using testing::MemoryRun;
using testing::XmlProblem;

TEST_CASE("memory report: fits, and by how much not", "[report][memory]") {
  MemoryReport report = MemoryExample().report;
  CHECK(report.fits());  // no limit
  CHECK(MemoryVerdictLine(report).empty());
  CHECK(!report.allocator_limit());
  const int worst = report.memory->WorstRank();
  const double needed =
      static_cast<double>(report.memory->ranks[worst].needed());
  report.limit_bytes = needed;
  report.limit_source = "system.memory";
  CHECK(report.fits());
  CHECK(MemoryVerdict(report).ok());
  CHECK(absl::StrContains(MemoryVerdictLine(report), "): fits, "));
  report.limit_bytes = needed - 1024;
  report.changes = {{.change = "strategy.recompute full",
                     .needed_bytes = needed / 2,
                     .saved_bytes = needed / 2,
                     .fits = true}};
  CHECK(!report.fits());
  const absl::Status verdict = MemoryVerdict(report);
  CHECK(verdict.code() == absl::StatusCode::kResourceExhausted);
  for (const char* part :
       {"rank 0 needs", "(system.memory): does not fit, 1 KiB too much, in ",
        "(stage 0, ", "strategy.recompute full saves", "(fits)"}) {
    INFO(verdict.message());
    CHECK(absl::StrContains(verdict.message(), part));
  }
}

TEST_CASE("memory report: advice on the host is about what fills it",
          "[report][memory][offload]") {
  MemoryReport report = MemoryExample().report;
  auto memory = std::make_shared<ScheduleMemory>(*report.memory);
  for (RankMemory& rank : memory->ranks) {
    rank.peak_host_activations = 0;
    rank.host_optimizer = 1000;
  }
  report.memory = memory;
  report.devices_on_node = {{1, 1}};
  report.host_limit_bytes = 1500;
  const auto verdict = [&] {
    return std::string(MemoryVerdict(report).message());
  };
  CHECK(report.HostNeeded() == 2000);
  CHECK(absl::StrContains(verdict(), "strategy.optimizer_placement gpu"));
  CHECK_FALSE(absl::StrContains(verdict(), "strategy.offload"));
  // One node has all ranks, however they are mapped.
  CHECK_FALSE(absl::StrContains(verdict(), "strategy.mapping"));
  memory->ranks[1].peak_host_activations = 4000;
  CHECK(report.HostNeeded() == 6000);
  CHECK(verdict().find("strategy.offload") <
        verdict().find("strategy.optimizer_placement"));
  report.devices_on_node = {{1, 0}, {0, 1}};
  CHECK(report.HostNeeded() == 5000);
  CHECK(absl::StrContains(verdict(), "strategy.mapping"));
  // Neither fits: both are told.
  report.limit_bytes = 5;
  report.limit_source = "system.memory";
  CHECK(absl::StrContains(verdict(), "(system.memory): does not fit"));
  CHECK(absl::StrContains(verdict(), "host memory: the devices of one node"));
}

TEST_CASE("memory report: JSON holds every category of every rank",
          "[report][memory]") {
  MemoryReport report = MemoryExample().report;
  report.limit_bytes = 5;
  report.limit_source = "system.memory";
  const Json json = MemoryToJson(report);
  CHECK(json["limit_bytes"] == 5);
  REQUIRE(json["ranks"].size() == 2);
  for (size_t rank = 0; rank < 2; ++rank) {
    const RankMemory& row = report.memory->ranks[rank];
    const auto& written = json["ranks"][rank];
    int64_t sum = 0;
    for (const auto& [kind, bytes] : written["at_peak"].items()) {
      sum += bytes.get<int64_t>();
    }
    CHECK(written["at_peak"].size() == kNumMemoryKinds);
    CHECK(sum == written["peak_bytes"].get<int64_t>());
    CHECK(written["peak_bytes"] == row.peak());
    CHECK(written["needed_bytes"] ==
          row.peak() + row.context + row.fragmentation);
    CHECK(written["cause"]["stage"] == row.stage);
    CHECK(written["cause"]["op"] == row.op);
    CHECK(!written["cause"]["pass"].get<std::string>().empty());
  }
}

TEST_CASE("memory report: a table for people, cut in the middle",
          "[report][memory]") {
  const MemoryReport report = MemoryExample().report;
  const std::string text = MemoryToText(report, 32);
  CHECK(absl::StrContains(text, "activations"));
  CHECK(absl::StrContains(text, "context 1 GiB, fragmentation none assumed"));
  CHECK(Count(text, "(stage ") == 2);
  // Nothing is offered that nobody uses.
  CHECK(!absl::StrContains(text, "recomputed"));
}

TEST_CASE("memory picture: a row a rank, the limit, a legend",
          "[report][memory]") {
  const MemoryRun run = MemoryExample();
  MemoryPicture picture;
  const std::string plain = MemoryOverTimeSvg(
      run.toy.program, *run.report.memory, run.toy.ops, picture);
  CHECK(XmlProblem(plain) == "");
  CHECK(Count(plain, "<title>rank ") == 2);
  CHECK(Count(plain, "class=\"limit\"") == 0);
  for (const char* part : {"weights", "activations", "time (", "rank 1"}) {
    CHECK(absl::StrContains(plain, part));
  }
  // Each row has numbers of its own at a line, in the unit that is named.
  CHECK(Count(plain, "memory (") == 1);
  CHECK(Count(plain, "class=\"ink tick\"") >= 2 * 2);
  CHECK(Count(plain, "a &lt;title&gt;") == 0);
  picture.title = "a <title>";
  CHECK(Count(MemoryOverTimeSvg(run.toy.program, *run.report.memory,
                                run.toy.ops, picture),
              "a &lt;title&gt;") == 1);
  picture.limit_bytes = 1e6;
  CHECK(Count(MemoryOverTimeSvg(run.toy.program, *run.report.memory,
                                run.toy.ops, picture),
              "class=\"limit\"") == 2);
  picture.most_rows = 1;
  picture.iteration = 7;
  CHECK(MemoryOverTimeSvg(run.toy.program, *run.report.memory, run.toy.ops,
                          picture)
            .empty());
}

}  // namespace
}  // namespace pipewright::memory_report_test
