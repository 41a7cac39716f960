// Traces of another shape than PyTorch writes.
#include "sim/trace/trace_events.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace pipewright::trace_events_test {
namespace {

struct Seen {
  TraceHeader header;
  std::vector<TraceEvent> events;
};

Seen Read(const std::string& text) {
  Seen seen;
  std::istringstream in(text);
  const absl::Status status = ReadTraceEvents(
      in, "trace.json",
      [&](const TraceEvent& event) {
        seen.events.push_back(event);
        return absl::OkStatus();
      },
      &seen.header);
  INFO(status);
  CHECK(status.ok());
  return seen;
}

TEST_CASE("trace events: lists where objects stand are passed over",
          "[trace]") {
  // Each of them was written into a device, or a list, that was not there.
  for (const char* devices :
       {"[[108]]", "[[true, 1.5, [2]]]", "{\"a\": [1]}"}) {
    INFO(devices);
    const Seen seen = Read(std::string("{\"deviceProperties\": ") + devices +
                           ", \"traceEvents\": []}");
    CHECK(seen.header.devices.empty());
  }
  const Seen known = Read(
      R"({"deviceProperties": [{"id": 3, "numSms": 108}, [7]],
          "traceEvents": []})");
  REQUIRE(known.header.devices.size() == 1);
  CHECK(known.header.devices[0].id == 3);
  CHECK(known.header.devices[0].multiprocessors == 108);
  for (const char* groups :
       {"[[4]]", "[4]", "{\"a\": 4}", "[[\"ranks\", [1]]]"}) {
    INFO(groups);
    const Seen seen =
        Read(std::string("{\"distributedInfo\": {\"pg_config\": ") + groups +
             "}, \"traceEvents\": []}");
    CHECK(seen.header.groups.empty());
  }
}

TEST_CASE("trace events: sizes of inputs that are no lists", "[trace]") {
  const auto dims = [](const std::string& text) {
    const Seen seen = Read(
        R"({"traceEvents": [{"ph": "X", "name": "mm", "ts": 1, "dur": 1,
            "args": {"Input Dims": )" +
        text + "}}]}");
    REQUIRE(seen.events.size() == 1);
    return seen.events[0].input_dims;
  };
  CHECK(dims("[{\"a\": 5}]").empty());
  CHECK(dims("{\"a\": {\"b\": 5}}").empty());
  CHECK(dims("[[2, 3], {\"a\": 5}]") ==
        std::vector<std::vector<int64_t>>{{2, 3}});
  CHECK(dims("[[2, 3], [], [4]]") ==
        std::vector<std::vector<int64_t>>{{2, 3}, {}, {4}});
}

}  // namespace
}  // namespace pipewright::trace_events_test
