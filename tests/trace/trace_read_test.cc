#include "sim/trace/trace_read.h"

#include <catch2/catch.hpp>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/trace/export.h"
#include "tests/trace/example.h"

namespace pipewright::trace_read_test {
namespace {

absl::StatusOr<ReadTrace> Read(const std::string& json) {
  std::istringstream in(json);
  return ReadChromeTrace(in, "t.json");
}

std::string Written() {
  return ChromeTraceJson(testing::ExampleProgram(), testing::ExampleOps());
}

TEST_CASE("trace read: gives back what was written", "[trace]") {
  const absl::StatusOr<ReadTrace> read = Read(Written());
  INFO(read.status());
  REQUIRE(read.ok());
  CHECK(read->schedule == "1f1b \"by hand\"");
  CHECK(read->wait_rule == WaitRule::kBuffered);
  std::vector<TraceOp> wanted;
  for (const TraceOp& op : testing::ExampleOps()) {
    if (op.kind != OpKind::kWait) wanted.push_back(op);
  }
  REQUIRE(read->ops.size() == wanted.size());
  for (const TraceOp& op : wanted) {
    int same = 0;
    for (const ReadOp& other : read->ops) {
      same += other.op.kind == op.kind && other.op.rank == op.rank &&
                      other.op.stream == op.stream &&
                      other.op.iteration == op.iteration &&
                      other.op.stage == op.stage && other.op.pass == op.pass &&
                      other.op.bytes == op.bytes &&
                      other.op.start_s == Approx(op.start_s).margin(1e-12) &&
                      other.op.end_s == Approx(op.end_s).margin(1e-12) &&
                      (op.channel < 0 || other.peer == 1 - op.rank)
                  ? 1
                  : 0;
    }
    CHECK(same == 1);
  }
  int activations = 0;
  for (const ReadPeak& peak : read->peaks) {
    if (peak.counter != "activations in flight") continue;
    ++activations;
    CHECK(peak.value == (peak.rank == 0 ? 2 : 1));
  }
  CHECK(activations == 2);
}

TEST_CASE("trace read: how its times came about", "[trace]") {
  const TraceOrigin none = Read(Written())->origin;
  CHECK(none.clock == kUnknownClock);
  CHECK(none.given.empty());
  CHECK(none.memory.empty());
  const TraceOrigin origin = {
      .clock = "virtual",
      .given = {std::string(kTransferTimes), std::string(kCopyTimes)},
      .only_rank = "1",
      .memory = std::string(kExecutorMemory)};
  const auto written = [&](const TraceOrigin& of,
                           const MeasuredMemory* measured) {
    return ChromeTraceJson(testing::ExampleProgram(), testing::ExampleOps(),
                           nullptr, measured, of);
  };
  TraceOrigin read = Read(written(origin, nullptr))->origin;
  CHECK(read.clock == "virtual");
  CHECK(read.given == origin.given);
  CHECK(read.only_rank == "1");
  CHECK(read.Gave(kCopyTimes));
  CHECK_FALSE(read.Gave(kKernelTimes));
  CHECK(read.activations == kCountedFromOrder);
  // No such counter, so no word of it.
  CHECK(read.memory.empty());
  MeasuredMemory measured(2);
  for (const TraceOp& op : testing::ExampleOps()) {
    if (op.kind == OpKind::kPass) measured[op.rank].push_back({2, 1});
  }
  CHECK(Read(written(origin, &measured))->origin.memory == kExecutorMemory);
  // A trace of an older version.
  const std::string old = absl::StrReplaceAll(
      Written(),
      {{",\"clock\":\"unknown\"", ""}, {",\"activations\":\"order\"", ""}});
  CHECK_FALSE(absl::StrContains(old, "clock"));
  read = Read(old)->origin;
  CHECK(read.clock == kUnknownClock);
  CHECK(read.activations.empty());
}

TEST_CASE("trace read: errors name file, event and field", "[trace]") {
  struct Case {
    std::string from;
    std::string to;
    std::vector<std::string> parts;
  };
  const std::vector<Case> cases = {
      {"\"microbatch\":0",
       "\"microbatch\":-1",
       {"t.json: event ", "args.microbatch", "-1"}},
      {"\"microbatch\":0", "\"microbatch\":0.5", {"event ", "0.5"}},
      {"\"microbatch\":0,", "\"chunk\":0,", {"event ", "args.microbatch"}},
      {"\"microbatch\":0",
       "\"microbatch\":0,\"chunk\":99999",
       {"event ", "too large"}},
      {"\"kind\":\"F\"", "\"kind\":\"Q\"", {"args.kind", "Q", "BW"}},
      {"\"kind\":\"F\",", "", {"args.kind"}},
      {"\"iteration\":0", "\"step\":0", {"args.iteration"}},
      {"\"cat\":\"pass\"", "\"cat\":\"pas\"", {"event ", "cat: pas"}},
      {"\"ts\":", "\"tx\":", {"ts: is missing"}},
      {"\"clock\":\"unknown\"",
       "\"clock\":\"sundial\"",
       {"t.json: otherData.clock", "sundial", "paced"}},
      {"\"clock\":\"unknown\"",
       "\"given\":\"transfers luck\"",
       {"t.json: otherData.given", "luck", "kernels"}},
      {"\"peer\":1", "\"peers\":1", {"args.peer"}},
      {"\"rank\":1", "\"ranks\":1", {"args.rank"}},
      {"\"wait_rule\"", "\"rule\"", {"event 0", "not written by pipewright"}},
      {"\"iteration\":0", "\"iteration\":2000000000", {"2e+09", "1000000"}},
      {"\"rank\":1", "\"rank\":1e99", {"args.rank", "1e+99"}},
      {"\"replica\":0", "\"replica\":1000000000", {"args.replica"}},
      {"\"ts\":", "\"ts\":1e300,\"tx\":", {"ts: 1e+300", "30 years"}},
      {"\"dur\":", "\"dur\":-1,\"dux\":", {"dur: -1"}},
      {"\"wait_rule\":\"buffered\"",
       "\"wait_rule\":\"nonsense\"",
       {"t.json", "wait_rule: nonsense", "rendezvous"}},
      {"\"traceEvents\"", "\"events\"", {"t.json", "traceEvents"}},
      {"{\"displayTimeUnit\"", "{displayTimeUnit", {"t.json", "byte 2"}},
  };
  for (const Case& each : cases) {
    INFO(each.from << " -> " << each.to);
    std::string text = Written();
    const size_t at = text.find(each.from);
    REQUIRE(at != std::string::npos);
    text.replace(at, each.from.size(), each.to);
    const absl::StatusOr<ReadTrace> read = Read(text);
    REQUIRE(!read.ok());
    CHECK(read.status().code() == absl::StatusCode::kInvalidArgument);
    for (const std::string& part : each.parts) {
      INFO(read.status().message());
      CHECK(absl::StrContains(read.status().message(), part));
    }
  }
  for (const char* text : {"", "[", "[]", "{}", "{\"traceEvents\":[]}", "7"}) {
    INFO(text);
    CHECK(!Read(text).ok());
  }
}

}  // namespace
}  // namespace pipewright::trace_read_test
