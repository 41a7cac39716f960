#include "sim/trace/export.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/json.h"
#include "tests/trace/example.h"

namespace pipewright::export_test {
namespace {

using testing::Json;

// Whole nanoseconds of a time in microseconds.
int64_t Nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1e3);
}

TEST_CASE("chrome trace: parses and says what ran when", "[trace]") {
  const Json trace = Json::parse(
      ChromeTraceJson(testing::ExampleProgram(), testing::ExampleOps()));
  CHECK(trace["otherData"]["schedule"] == "1f1b \"by hand\"");
  std::map<int, std::string> processes;
  std::map<std::pair<int, int>, std::string> threads;
  std::map<std::pair<int, int>, int64_t> end_ns;
  std::map<std::string, int64_t> busy_ns;
  int slices = 0;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    const int pid = event["pid"];
    if (phase == "M" && event["name"] == "process_name") {
      processes[pid] = event["args"]["name"];
    }
    if (phase == "M" && event["name"] == "thread_name") {
      threads[{pid, event["tid"]}] = event["args"]["name"];
    }
    if (phase != "X") continue;
    ++slices;
    const std::pair<int, int> track = {pid, event["tid"]};
    const int64_t start_ns = Nanoseconds(event["ts"]);
    CHECK(start_ns >= end_ns[track]);
    end_ns[track] = start_ns + Nanoseconds(event["dur"]);
    CHECK(event["args"]["iteration"] == 0);
    busy_ns[processes.at(pid) + "/" + threads.at(track)] +=
        Nanoseconds(event["dur"]);
    if (event["name"] == "BW0" && processes[pid] == "rank 1") {
      CHECK(event["ts"] == 2500.0);
      CHECK(event["dur"] == 2000.0);
      CHECK(event["args"]["stage"] == 1);
    }
    if (event["name"] == "send F0") CHECK(event["args"]["bytes"] == 1e6);
  }
  CHECK(slices == 18);
  CHECK(processes == std::map<int, std::string>{{1, "rank 0"}, {2, "rank 1"}});
  CHECK(busy_ns.at("rank 0/compute") == 6000000);
  CHECK(busy_ns.at("rank 1/send") == 1000000);
}

TEST_CASE("chrome trace: arrows begin, pass and end inside slices", "[trace]") {
  const Json trace = Json::parse(
      ChromeTraceJson(testing::ExampleProgram(), testing::ExampleOps()));
  std::map<int, std::string> phases;
  std::map<int, double> last;
  for (const Json& event : trace["traceEvents"]) {
    const std::string phase = event["ph"];
    if (phase != "s" && phase != "t" && phase != "f") continue;
    const int id = event["id"];
    phases[id] += phase;
    CHECK(event["ts"].get<double>() >= last[id]);
    last[id] = event["ts"];
    int around = 0;
    for (const Json& slice : trace["traceEvents"]) {
      if (slice["ph"] != "X" || slice["pid"] != event["pid"] ||
          slice["tid"] != event["tid"]) {
        continue;
      }
      const double start = slice["ts"];
      const double end = start + slice["dur"].get<double>();
      around += event["ts"] > start && event["ts"] < end;
    }
    CHECK(around == 1);
  }
  CHECK(phases.size() == 4);
  for (const auto& [id, text] : phases) CHECK(text == "sttf");
}

TEST_CASE("chrome trace: counters are there", "[trace]") {
  const Json trace = Json::parse(
      ChromeTraceJson(testing::ExampleProgram(), testing::ExampleOps()));
  std::map<int, std::vector<double>> activations;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "C" || event["name"] != "activations in flight") {
      continue;
    }
    activations[event["pid"]].push_back(event["args"]["value"]);
  }
  CHECK(activations[1] == std::vector<double>{1, 2, 1, 0});
  // BW0 ends where F1 starts: one stays in flight.
  CHECK(activations[2] == std::vector<double>{1, 0});
}

TEST_CASE("chrome trace: a trace of nothing parses", "[trace]") {
  const Json trace =
      Json::parse(ChromeTraceJson(testing::ExampleProgram(), {}));
  CHECK(trace["traceEvents"].empty());
}

}  // namespace
}  // namespace pipewright::export_test
