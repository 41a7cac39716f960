// Regions of other programs' traces, and what they took on the device.
#include "sim/trace/trace_regions.h"

#include <catch2/catch.hpp>
#include <sstream>

namespace pipewright::trace_regions_test {
namespace {

constexpr Region kOrder[] = {Region::kBackwardInput, Region::kBackwardFull,
                             Region::kForward};

// A region of 10 us on the host that launches two kernels of 3 and 4 us, a
// part of it, its shadow on the device, and one that launches nothing.
constexpr char kTrace[] = R"({
  "deviceProperties": [
    {"id": 0, "name": "First", "totalGlobalMem": 1024},
    {"id": 1, "name": "Second", "totalGlobalMem": 2048}],
  "traceEvents": [
    {"ph": "M", "name": "process_name", "pid": 1},
    {"ph": "X", "cat": "kernel", "name": "forward_gemm", "pid": 0, "tid": 7,
     "ts": 120, "dur": 3, "args": {"correlation": 1}},
    {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7,
     "ts": 125, "dur": 4, "args": {"correlation": 2}},
    {"ph": "X", "cat": "user_annotation", "name": "forward", "pid": 1,
     "tid": 2, "ts": 100, "dur": 10},
    {"ph": "X", "cat": "user_annotation", "name": "forward part", "pid": 1,
     "tid": 2, "ts": 102, "dur": 2},
    {"ph": "X", "cat": "gpu_user_annotation", "name": "forward", "pid": 0,
     "tid": 7, "ts": 120, "dur": 9},
    {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 1, "tid": 2,
     "ts": 101, "dur": 1, "args": {"correlation": 1}},
    {"ph": "X", "cat": "cuda_runtime", "name": "launch", "pid": 1, "tid": 2,
     "ts": 103, "dur": 1, "args": {"correlation": 2}},
    {"ph": "X", "cat": "user_annotation", "name": "backward", "pid": 1,
     "tid": 2, "ts": 200, "dur": 10},
    {"ph": "X", "cat": "user_annotation", "name": "data", "pid": 1, "tid": 2,
     "ts": 300, "dur": 10}]})";

absl::Status Read(const std::string& text, RegionReader* reader,
                  TraceHeader* header) {
  std::istringstream in(text);
  return ReadTraceEvents(
      in, "trace.json",
      [&](const TraceEvent& event) { return reader->See(event); }, header);
}

TEST_CASE("trace regions: kernels launched inside, outermost, once",
          "[trace]") {
  const auto patterns = CompileRegions({}, kOrder);
  REQUIRE(patterns.ok());
  RegionReader reader(*patterns);
  TraceHeader header;
  REQUIRE(Read(kTrace, &reader, &header).ok());
  const std::vector<TraceRegion> regions = reader.Finish();
  REQUIRE(regions.size() == 1);
  CHECK(regions[0].region == Region::kForward);
  CHECK(regions[0].process == "1");
  CHECK(regions[0].start_us == 120);
  CHECK(regions[0].end_us == 129);
  CHECK(regions[0].sum_us == 7);
  CHECK(reader.has_kernels());
  CHECK(reader.other_names() == std::set<std::string>{"data"});
  CHECK(header.device == "First");
  CHECK(header.device_memory_bytes == 1024);
}

// Autograd's thread, and Megatron-LM's timers around and between.
TEST_CASE(
    "trace regions: marks before operators, passes before what holds them",
    "[trace]") {
  const auto patterns = CompileRegions({}, kOrder);
  REQUIRE(patterns.ok());
  const std::string text = R"([
    {"ph": "X", "cat": "user_annotation", "name": "forward-backward",
     "pid": 1, "tid": 1, "ts": 0, "dur": 90},
    {"ph": "X", "cat": "user_annotation",
     "name": "FullyShardedDataParallel._post_backward_hook",
     "pid": 1, "tid": 2, "ts": 5, "dur": 1},
    {"ph": "X", "cat": "user_annotation", "name": "FSDP::pre_forward",
     "pid": 1, "tid": 2, "ts": 6, "dur": 1},
    {"ph": "X", "cat": "user_annotation", "name": "forward-compute",
     "pid": 1, "tid": 1, "ts": 1, "dur": 9},
    {"ph": "X", "cat": "user_annotation", "name": "forward-send-backward-recv",
     "pid": 1, "tid": 1, "ts": 10, "dur": 9},
    {"ph": "X", "cat": "user_annotation", "name": "PP:0B0",
     "pid": 1, "tid": 1, "ts": 20, "dur": 9},
    {"ph": "X", "cat": "cpu_op", "name": "aten::native_layer_norm_backward",
     "pid": 1, "tid": 2, "ts": 21, "dur": 2},
    {"ph": "X", "cat": "user_annotation", "name": "backward-recv",
     "pid": 1, "tid": 1, "ts": 30, "dur": 9}])";
  TraceHeader header;
  RegionReader reader(*patterns);
  REQUIRE(Read(text, &reader, &header).ok());
  const std::vector<TraceRegion> regions = reader.Finish();
  REQUIRE(regions.size() == 2);
  CHECK(regions[0].region == Region::kForward);
  CHECK(regions[0].start_us == 1);
  CHECK(regions[1].region == Region::kBackwardFull);
  CHECK(regions[1].start_us == 20);
}

TEST_CASE("trace regions: categories, and the first pattern that fits",
          "[trace]") {
  const auto patterns = CompileRegions({}, kOrder);
  REQUIRE(patterns.ok());
  const std::string text = R"([
    {"ph": "X", "cat": "python", "name": "forward", "pid": 1, "tid": 1,
     "ts": 5, "dur": 1},
    {"ph": "X", "cat": "cpu_op", "name": "backward_input", "pid": 1, "tid": 1,
     "ts": 1, "dur": 2}])";
  TraceHeader header;
  RegionReader all(*patterns);
  REQUIRE(Read(text, &all, &header).ok());
  CHECK_FALSE(all.has_kernels());
  CHECK(all.Finish().size() == 2);
  RegionReader some(*patterns, {"cpu_op"});
  REQUIRE(Read(text, &some, &header).ok());
  const std::vector<TraceRegion> regions = some.Finish();
  REQUIRE(regions.size() == 1);
  CHECK(regions[0].region == Region::kBackwardInput);
  CHECK(regions[0].sum_us == 2);
}

TEST_CASE("trace regions: errors name the option or the event", "[trace]") {
  std::array<std::string, kNumRegions> given;
  given[static_cast<int>(Region::kBackwardFull)] = std::string("(");
  CHECK_THAT(std::string(CompileRegions(given, kOrder).status().message()),
             Catch::Contains("--backward: ( is not allowed"));
  const auto patterns = CompileRegions({}, kOrder);
  RegionReader reader(*patterns);
  TraceHeader header;
  const absl::Status status =
      Read(R"([{"ph": "M"}, {"ph": "X", "name": "forward", "ts": 1}])", &reader,
           &header);
  CHECK_THAT(std::string(status.message()),
             Catch::Contains("trace.json: event 1: ts, dur: are missing"));
}

}  // namespace
}  // namespace pipewright::trace_regions_test
