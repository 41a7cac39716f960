// Every kind of operation in a Program by hand, timed by hand, on both
// engines; and programs that cannot run.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <utility>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/program.h"
#include "sim/schedule/text.h"
#include "tests/support/lowering.h"

namespace pipewright::side_ops_test {
namespace {

using Runner = absl::StatusOr<RunSummary> (*)(const Program&,
                                              const EngineOptions&);
const std::map<std::string, Runner> kEngines = {{"fast", &RunFast},
                                                {"simgrid", &RunSimgrid}};

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

// Start and end of every operation of a kind on a rank.
using Times = std::vector<std::pair<double, double>>;

// Joins another stream: compute waits for `op` at `position` of `rank`.
void Await(Program& program, int rank, int64_t position, SideOp op) {
  const int32_t event = AddSideChannel(program, rank, rank);
  op.outputs.push_back(event);
  AttachOp(program, rank, position, std::move(op));
  AttachOp(program, rank, position, {.kind = OpKind::kWait, .inputs = {event}});
}

TEST_CASE("operations: each kind is timed as its rule says", "[engine]") {
  // Two ranks, one link of 4 B/s and 1 s each way, 2 B/s and 0.5 s to the
  // host.
  const auto cluster = std::make_shared<Cluster>(
      "test", std::vector<Device>(2),
      std::vector<Link>{{.bytes_per_s = 4, .latency_s = 1},
                        {.bytes_per_s = 4, .latency_s = 1},
                        {.bytes_per_s = 2, .latency_s = 0.5},
                        {.bytes_per_s = 2, .latency_s = 0.5}},
      [](int from, int to, std::vector<LinkId>* links) {
        if (from != to) links->push_back(from);
      },
      [](int, std::vector<LinkId>* links) { links->push_back(2); },
      [](int, std::vector<LinkId>* links) { links->push_back(3); });
  const auto schedule = Parsed(
      "pp 2 vpp 1 microbatches 1\n"
      "0: F0 O0 L0 BW0\n"
      "1: F0 BW0");
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 10, .backward_input = 10, .backward_weight = 10});
  options.activation_bytes = {4, 0};
  options.hop_bytes = 0;
  options.iterations = 1;
  options.network = NetworkOf(cluster, {0, 1}, 2, 1);
  Program program = Lowered(schedule, options);
  program.groups.push_back({.span = Group::Span::kRanks, .ranks = {0, 1}});
  // Before anything: rank 0 works on the host for 6 s, twice, one after the
  // other; nobody waits.
  for (int count = 0; count < 2; ++count) {
    AttachOp(program, 0, 0,
             {.kind = OpKind::kCpu, .stream = Stream::kCpu, .seconds = 6});
  }
  // Rank 1 reads 8 bytes of rank 0 and writes 12 to it at the same time.
  AttachOp(program, 1, 0,
           {.kind = OpKind::kPull,
            .stream = Stream::kReceive,
            .bytes = 8,
            .peer = 0});
  AttachOp(
      program, 1, 0,
      {.kind = OpKind::kPush, .stream = Stream::kSend, .bytes = 12, .peer = 0});
  // Behind the passes: a barrier that compute waits for, then the step, its
  // check and its undoing.
  for (const int rank : {0, 1}) {
    const auto end = static_cast<int64_t>(schedule->order(rank).size());
    Await(
        program, rank, end,
        {.kind = OpKind::kBarrier, .stream = Stream::kCollective, .group = 0});
    AttachOp(program, rank, end, {.kind = OpKind::kOptimizer, .seconds = 3});
    AttachOp(program, rank, end, {.kind = OpKind::kValidate, .seconds = 2});
    AttachOp(program, rank, end, {.kind = OpKind::kRollback, .seconds = 1});
  }
  REQUIRE(VerifyProgram(program) == absl::OkStatus());

  for (const auto& [name, run] : kEngines) {
    INFO(name);
    FullTrace trace;
    const auto summary = run(program, {.trace = &trace});
    INFO(summary.status());
    REQUIRE(summary.ok());
    std::map<std::pair<OpKind, int>, Times> told;
    for (const TraceOp& op : trace.ops()) {
      told[{op.kind, op.rank}].emplace_back(op.start_s, op.end_s);
    }
    const auto check = [&](OpKind kind, int rank, const Times& expected) {
      INFO(OpKindName(kind) << " on rank " << rank);
      Times times = told[{kind, rank}];
      told.erase({kind, rank});
      std::sort(times.begin(), times.end());
      REQUIRE(times.size() == expected.size());
      for (size_t index = 0; index < times.size(); ++index) {
        CHECK(times[index].first ==
              Approx(expected[index].first).epsilon(kSame));
        CHECK(times[index].second ==
              Approx(expected[index].second).epsilon(kSame));
      }
    };
    check(OpKind::kCpu, 0, {{0, 6}, {6, 12}});
    check(OpKind::kPull, 1, {{0, 1 + 8 / 4.0}});
    check(OpKind::kPush, 1, {{0, 1 + 12 / 4.0}});
    // F 10, to rank 1 in 1 s (latency only), F 21, BW 41, back at 42.
    check(OpKind::kPass, 0, {{0, 10}, {42, 62}});
    check(OpKind::kPass, 1, {{11, 21}, {21, 41}});
    check(OpKind::kSend, 0, {{10, 11}});
    check(OpKind::kReceive, 1, {{10, 11}});
    check(OpKind::kSend, 1, {{41, 42}});
    check(OpKind::kReceive, 0, {{41, 42}});
    check(OpKind::kOffload, 0, {{10, 12.5}});
    check(OpKind::kLoad, 0, {{12.5, 15}});
    // From the last one's arrival, one step of 1 s.
    for (const int rank : {0, 1}) {
      check(OpKind::kBarrier, rank, {{62, 63}});
      check(OpKind::kWait, rank, {{63, 63}});
      check(OpKind::kOptimizer, rank, {{63, 66}});
      check(OpKind::kValidate, rank, {{66, 68}});
      check(OpKind::kRollback, rank, {{68, 69}});
    }
    CHECK(told.empty());
    CHECK(summary->iteration_s() == Approx(69).epsilon(kSame));
    // Side operations are no passes.
    CHECK(summary->times[0][0].last_end_s == Approx(62).epsilon(kSame));
    CHECK(summary->times[0][0].busy_s == Approx(30).epsilon(kSame));
    CHECK(summary->passes == 4);
    CHECK(summary->steady == false);
  }
}

// Checks one rank whose offload takes 5, load 7 and R 3; all else takes 1.
void CheckLateLoad(const std::string& order, double last_end_s, double busy_s) {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 2\n0: " + order);
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.costs.stages[0].recompute_s = 3;
  options.costs.stages[0].offload_s = 5;
  options.costs.stages[0].load_s = 7;
  options.iterations = 1;
  const Program program = Lowered(schedule, options);
  for (const auto& [name, run] : kEngines) {
    INFO(name);
    const auto summary = run(program, {});
    REQUIRE(summary.ok());
    CHECK(summary->times[0][0].last_end_s == Approx(last_end_s).epsilon(kSame));
    CHECK(summary->times[0][0].busy_s == Approx(busy_s).epsilon(kSame));
  }
}

// 16 bytes of a microbatch in two slices over 2 B/s and 0.5 s.
TEST_CASE("operations: a copy of a slice moves its part", "[engine]") {
  const auto host = [](int, std::vector<LinkId>* links) {
    links->push_back(0);
  };
  const auto cluster = std::make_shared<Cluster>(
      "test", std::vector<Device>(1),
      std::vector<Link>{{.bytes_per_s = 2, .latency_s = 0.5}},
      [](int, int, std::vector<LinkId>*) {}, host, host);
  const auto schedule = Parsed(
      "pp 1 vpp 1 microbatches 1 slices 2\n"
      "0: F0s0 O0s0 F0s1 BW0s1 L0s0 BW0s0");
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 2, .backward_input = 1, .backward_weight = 1});
  options.activation_bytes = {16};
  options.iterations = 1;
  options.network = NetworkOf(cluster, {0}, 1, 1);
  const Program program = Lowered(schedule, options);
  for (const auto& [name, run] : kEngines) {
    INFO(name);
    FullTrace trace;
    REQUIRE(run(program, {.trace = &trace}).ok());
    int copies = 0;
    for (const TraceOp& op : trace.ops()) {
      if (op.kind != OpKind::kOffload && op.kind != OpKind::kLoad) continue;
      CHECK(op.end_s - op.start_s == Approx(0.5 + 8 / 2.0));
      ++copies;
    }
    CHECK(copies == 2);
  }
}

TEST_CASE("operations: a load that is late holds its backward", "[engine]") {
  // O0 1 to 6, L0 6 to 13; BW1 2 to 4, BW0 13 to 15.
  CheckLateLoad("F0 O0 F1 L0 BW1 BW0", 15, 6);
}

TEST_CASE("operations: a load that is late holds the passes that run again",
          "[engine]") {
  // O0 1 to 6, L0 6 to 13, R0 13 to 16, R1 to 19, BW0 and BW1 to 23.
  CheckLateLoad("F0 O0 F1 L0 R0 R1 BW0 BW1", 23, 12);
}

// Rank 0 sends F1 before it takes BW0; rank 1 sends BW0 before it takes F1.
TEST_CASE("deadlock: both ranks send first", "[engine]") {
  const auto schedule = Registered("1f1b", 2, 2);
  LowerOptions options;
  options.costs = CostsOf(*schedule, {});
  options.iterations = 1;
  for (const auto& [name, run] : kEngines) {
    INFO(name);
    options.wait_rule = WaitRule::kBuffered;
    CHECK(run(Lowered(schedule, options), {}).ok());
    // What a batch posts together does not block itself.
    options.wait_rule = WaitRule::kBatched;
    CHECK(run(Lowered(schedule, options), {}).ok());
    options.wait_rule = WaitRule::kRendezvous;
    const auto summary = run(Lowered(schedule, options), {});
    REQUIRE(summary.status().code() == absl::StatusCode::kFailedPrecondition);
    const std::string message(summary.status().message());
    CHECK_THAT(message, Catch::Contains("rendezvous"));
    // Rank 0 has run F1 and holds it; rank 1 has run BW0 and holds it.
    CHECK_THAT(message, Catch::Contains("0: F0 F1  >BW0< BW1"));
    CHECK_THAT(message, Catch::Contains("1: F0 BW0 >F1<  BW1"));
    CHECK_THAT(message, Catch::Contains("rank 0 is held by "));
    CHECK_THAT(message, Catch::Contains("rank 1 is held by "));
  }
}

TEST_CASE("deadlock: orders that wait for each other", "[engine]") {
  auto schedule = ParseSchedule(
      "pipewright-schedule 1\npp 2 vpp 1 microbatches 2\n"
      "0: F0 F1 BW1 BW0\n"
      "1: F0 F1 BW0 BW1\n",
      "t");
  REQUIRE(schedule.ok());
  // Crossing forwards and backwards is legal with buffers; waiting for the
  // backward of what has not been sent is not.
  auto stuck = ParseSchedule(
      "pipewright-schedule 1\npp 2 vpp 1 microbatches 2\n"
      "0: F0 BW0 F1 BW1\n"
      "1: F0 F1 BW0 BW1\n",
      "t");
  REQUIRE(stuck.ok());
  LowerOptions options;
  options.costs = CostsOf(*schedule, {});
  options.iterations = 3;
  for (const auto& [name, run] : kEngines) {
    INFO(name);
    CHECK(run(Lowered(std::make_shared<const Schedule>(*schedule), options), {})
              .ok());
    for (const WaitRule rule :
         {WaitRule::kBuffered, WaitRule::kRendezvous, WaitRule::kBatched}) {
      options.wait_rule = rule;
      const auto summary =
          run(Lowered(std::make_shared<const Schedule>(*stuck), options), {});
      REQUIRE(summary.status().code() == absl::StatusCode::kFailedPrecondition);
      CHECK_THAT(std::string(summary.status().message()),
                 Catch::Contains("0: F0 >BW0< F1  BW1") &&
                     Catch::Contains("1: F0 >F1<  BW0 BW1"));
    }
    options.wait_rule = WaitRule::kBuffered;
  }
}

// Two members come to two meetings in opposite orders.
TEST_CASE("deadlock: meetings in opposite orders", "[engine]") {
  const auto schedule = Registered("gpipe", 2, 1);
  LowerOptions options;
  options.costs = CostsOf(*schedule, {});
  options.iterations = 1;
  Program program = Lowered(schedule, options);
  for (int group = 0; group < 2; ++group) {
    program.groups.push_back({.span = Group::Span::kRanks, .ranks = {0, 1}});
  }
  for (const int rank : {0, 1}) {
    for (const int turn : {0, 1}) {
      AttachOp(program, rank, 2,
               {.kind = OpKind::kBarrier,
                .stream = Stream::kCollective,
                .group = turn ^ rank});
    }
  }
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  for (const auto& [name, run] : kEngines) {
    INFO(name);
    const auto summary = run(program, {});
    REQUIRE(summary.status().code() == absl::StatusCode::kFailedPrecondition);
    CHECK_THAT(std::string(summary.status().message()),
               Catch::Contains("rank 0 waits for barrier") &&
                   Catch::Contains("rank 1 waits for barrier"));
  }
}

}  // namespace
}  // namespace pipewright::side_ops_test
