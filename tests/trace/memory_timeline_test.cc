#include "sim/trace/memory_timeline.h"

#include <algorithm>
#include <catch2/catch.hpp>

#include "sim/trace/export.h"
#include "sim/trace/timeline.h"
#include "tests/support/json.h"
#include "tests/support/memory_example.h"

namespace pipewright::memory_timeline_test {
namespace {

using testing::MemoryExample;
using testing::MemoryRun;

TEST_CASE("trace: memory over time peaks and ends as its order says",
          "[trace][memory]") {
  const MemoryRun run = MemoryExample();
  const ScheduleMemory& memory = *run.report.memory;
  const auto samples =
      MemoryOverTime(run.toy.program, memory, run.toy.ops, 0, 0);
  REQUIRE(samples.size() == 2);
  for (int rank = 0; rank < 2; ++rank) {
    const RankMemory& row = memory.ranks[rank];
    int64_t highest = 0;
    double last_s = -1;
    for (const MemorySample& sample : samples[rank]) {
      CHECK(sample.time_s > last_s);
      last_s = sample.time_s;
      highest = std::max(highest, sample.bytes.total());
    }
    CHECK(highest == row.peak());
    CHECK(samples[rank].back().bytes == row.fixed);
  }
  CHECK(MemoryOverTime(run.toy.program, memory, run.toy.ops, 0, 1)[0].empty());
}

TEST_CASE("trace: the memory counter is in bytes and per rank",
          "[trace][memory]") {
  const MemoryRun run = MemoryExample();
  const ScheduleMemory& memory = *run.report.memory;
  const Timeline timeline =
      BuildTimeline(run.toy.program, run.toy.ops, &memory);
  int found = 0;
  for (const Timeline::Counter& counter : timeline.counters) {
    CHECK(counter.in_bytes == (counter.name == "memory"));
    if (!counter.in_bytes) continue;
    const RankMemory& row = memory.ranks[counter.process];
    double highest = 0;
    for (const Timeline::Sample& sample : counter.samples) {
      highest = std::max(highest, sample.value);
    }
    CHECK(highest == static_cast<double>(row.peak()));
    CHECK(counter.samples.back().value ==
          static_cast<double>(row.fixed.total()));
    ++found;
  }
  CHECK(found == 2);
  for (const Timeline::Counter& counter :
       BuildTimeline(run.toy.program, run.toy.ops).counters) {
    CHECK(!counter.in_bytes);
  }

  const auto json = testing::Json::parse(
      ChromeTraceJson(run.toy.program, run.toy.ops, &memory));
  double highest = 0;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] != "C" || event["name"] != "memory") continue;
    highest = std::max(highest, event["args"]["bytes"].get<double>());
  }
  CHECK(highest == static_cast<double>(std::max(memory.ranks[0].peak(),
                                                memory.ranks[1].peak())));
}

}  // namespace
}  // namespace pipewright::memory_timeline_test
