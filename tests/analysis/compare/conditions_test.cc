// What a comparison says of times that were given, and of counters that count
// two things.
#include "sim/analysis/compare/comparison.h"

#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "sim/schedule/text.h"
#include "tests/support/compared_runs.h"
#include "tests/support/json.h"

namespace pipewright::conditions_test {
namespace {

using testing::Json;

struct Pair {
  ReadTrace simulated;
  ReadTrace measured;
};

// F takes 1.5 times as long; both have a counter of memory.
Pair TwoTraces(const TraceOrigin& measured_origin) {
  const Program program = testing::ComparedProgram({});
  Pair pair = {testing::SimulatedTrace(program),
               testing::SimulatedTrace(
                   testing::WithSlower(program, PassKind::kForward, -1, 1.5))};
  for (int rank = 0; rank < program.pp(); ++rank) {
    pair.simulated.peaks.push_back({0, rank, "memory", 3.0 * (1 << 20)});
    pair.measured.peaks.push_back({0, rank, "memory", 5.0 * (1 << 20)});
  }
  pair.simulated.origin.clock = std::string(kSimulatedClock);
  pair.simulated.origin.memory = std::string(kAllocatorMemory);
  pair.measured.origin = measured_origin;
  return pair;
}

TraceOrigin Virtual() {
  return {.clock = "virtual",
          .given = {std::string(kTransferTimes), std::string(kGapTimes)},
          .memory = std::string(kExecutorMemory),
          .activations = std::string(kCountedFromOrder)};
}

TraceComparison Compared(const Pair& pair) {
  return testing::CompareTraces(pair.simulated, pair.measured);
}

std::string LineOf(const std::string& text, const std::string& begin) {
  const size_t at = text.find("\n" + begin);
  REQUIRE(at != std::string::npos);
  return text.substr(at + 1, text.find('\n', at + 1) - at - 1);
}

TEST_CASE("conditions: what was given is not called a difference of 0",
          "[compare]") {
  const TraceComparison comparison = Compared(TwoTraces(Virtual()));
  const std::string text = ComparisonToText(comparison);
  INFO(text);
  for (const char* const given : {"transfers", "launch gaps and waiting"}) {
    const std::string line = LineOf(text, given);
    CHECK(absl::StrContains(line, "given, not measured"));
    CHECK_FALSE(absl::StrContains(line, "0.000"));
  }
  CHECK_FALSE(absl::StrContains(LineOf(text, "kernels F"), "given"));
  CHECK(absl::StrContains(text,
                          "ran by the virtual clock: its transfers and gaps "
                          "are the program's own numbers"));
  const auto json = Json::parse(ComparisonToJson(comparison));
  CHECK(json["clock"]["simulated"] == "simulated");
  CHECK(json["clock"]["measured"] == "virtual");
  CHECK(json["given"] == std::vector<std::string>{"transfers", "gaps"});
  for (const auto& difference : json["differences"]) {
    CHECK(difference["given"] == (difference["cause"] == "transfers" ||
                                  difference["cause"] == "gaps"));
  }
  CHECK(json["conditions"].size() == comparison.conditions.size());
}

TEST_CASE("conditions: activations can differ only by when copies end",
          "[compare]") {
  const auto claims = [](const std::string& file) {
    absl::StatusOr<Schedule> schedule = ParseSchedule(file, "s.pws");
    REQUIRE(schedule.ok());
    const ReadTrace trace = testing::SimulatedTrace(
        testing::ComparedProgram({}, *std::move(schedule)));
    const TraceComparison comparison = testing::CompareTraces(trace, trace);
    return absl::StrContains(absl::StrJoin(comparison.conditions, "\n"),
                             "peak activations are counted from the order");
  };
  const std::string head =
      "pipewright-schedule 1\n"
      "pp 1 vpp 1 microbatches 2 slices 1 replicas 1 placement plain\n";
  CHECK(claims(head + "0: F0 F1 BW0 BW1\n"));
  CHECK_FALSE(claims(head + "0: F0 O0 F1 L0 BW0 BW1\n"));
}

TEST_CASE("conditions: given times that differ keep their number",
          "[compare]") {
  // The two runs were given different hops.
  const Program program = testing::ComparedProgram({});
  Program slower = program;
  slower.network.hop_s *= 3;
  Pair pair = {testing::SimulatedTrace(program),
               testing::SimulatedTrace(slower)};
  pair.measured.origin = Virtual();
  const std::string line =
      LineOf(ComparisonToText(Compared(pair)), "transfers");
  CHECK(absl::StrContains(line, "given, not measured"));
  CHECK(absl::StrContains(line, "+"));
}

TEST_CASE("conditions: where a trace says nothing, it is unknown",
          "[compare]") {
  const TraceComparison comparison = Compared(TwoTraces({}));
  const std::string text = ComparisonToText(comparison);
  INFO(text);
  CHECK(absl::StrContains(text, "does not say by which clock it ran"));
  CHECK_FALSE(absl::StrContains(text, "given, not measured"));
  CHECK(absl::StrContains(text, "measured an unknown count"));
  const auto json = Json::parse(ComparisonToJson(comparison));
  CHECK(json["clock"]["measured"] == "unknown");
  CHECK(json["memory"]["measured"]["meaning"] == "unknown");

  Pair both = TwoTraces({.clock = std::string(kSimulatedClock)});
  CHECK(absl::StrContains(ComparisonToText(Compared(both)),
                          "is simulated too: nothing in it is measured"));
  Pair alone = TwoTraces({.clock = "real", .only_rank = "2"});
  CHECK(absl::StrContains(ComparisonToText(Compared(alone)),
                          "only rank 2 ran: the passes of all others are "
                          "given too"));
  Pair real = TwoTraces({.clock = "real"});
  real.simulated.origin.memory = "";
  real.simulated.peaks.clear();
  CHECK(Compared(real).conditions.empty());
  real.simulated.origin.clock = "paced";
  CHECK(absl::StrContains(absl::StrJoin(Compared(real).conditions, "\n"),
                          "an executed run (paced clock), no prediction"));
}

TEST_CASE("conditions: only the same memory is paired", "[compare]") {
  Pair pair = TwoTraces(Virtual());
  const TraceComparison apart = Compared(pair);
  const std::string text = ComparisonToText(apart);
  INFO(text);
  CHECK_FALSE(apart.ranks[0].peak_memory_bytes.has_value());
  CHECK(*apart.ranks[0].memory_bytes[kMeasured] == 5.0 * (1 << 20));
  CHECK_FALSE(absl::StrContains(text, " / 5 MiB"));
  CHECK(absl::StrContains(text, "memory, sim."));
  CHECK(absl::StrContains(
      text,
      "peak memory is not compared: simulated it is what a model says that the "
      "device's allocator holds, measured what the executor has allocated"));
  auto json = Json::parse(ComparisonToJson(apart));
  CHECK_FALSE(json["ranks"][0].contains("peak_memory_bytes"));
  CHECK(json["memory"]["simulated"]["meaning"] == "allocator");
  CHECK(json["memory"]["measured"]["meaning"] == "executor");
  CHECK(json["memory"]["measured"]["peak_bytes"][3] == 5.0 * (1 << 20));

  pair.simulated.origin.memory = std::string(kExecutorMemory);
  const TraceComparison paired = Compared(pair);
  CHECK(paired.ranks[0].peak_memory_bytes->simulated == 3.0 * (1 << 20));
  CHECK(absl::StrContains(ComparisonToText(paired), "3 MiB / 5 MiB"));
  CHECK_FALSE(
      absl::StrContains(ComparisonToText(paired), "memory is not compared"));
  json = Json::parse(ComparisonToJson(paired));
  CHECK(json["ranks"][0]["peak_memory_bytes"]["measured"] == 5.0 * (1 << 20));

  // Nor is what one trace alone has.
  pair.measured.peaks.clear();
  json = Json::parse(ComparisonToJson(Compared(pair)));
  CHECK(json["memory"]["measured"].is_null());
  CHECK_FALSE(json["ranks"][0].contains("peak_memory_bytes"));
}

}  // namespace
}  // namespace pipewright::conditions_test
