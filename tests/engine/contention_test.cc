// Fair sharing by hand: programs small enough that the time of every transfer
// on a shared link can be written down.
#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/fluid_clock.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/topology/mapping.h"
#include "sim/topology/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::contention_test {
namespace {

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

Approx Is(double value) { return Approx(value).epsilon(kSame); }

// SmallFabric: NIC 16 B/s with 0.25 s at each end, NVLink 64 B/s with 0.125 s
// at each end, PCIe 8 B/s with 0.125 s.
constexpr double kNicLatency = 0.5;
constexpr double kNicBandwidth = 16;

Network Fabric(const ShapeParams& params, std::vector<int> devices, int pp,
               int dp) {
  auto cluster = BuildCluster(params);
  INFO(cluster.status());
  REQUIRE(cluster.ok());
  return NetworkOf(std::make_shared<Cluster>(*std::move(cluster)),
                   std::move(devices), pp, dp);
}

// Each engine that shares links tells the same.
RunSummary Sharing(const Program& program, FullTrace* trace = nullptr) {
  FullTrace own;
  if (trace == nullptr) trace = &own;
  FullTrace activities;
  const auto simgrid = RunSimgrid(program, {.trace = &activities});
  INFO(simgrid.status());
  REQUIRE(simgrid.ok());
  const auto summary = RunOnFluidClock(program, {.trace = trace});
  INFO(summary.status());
  REQUIRE(summary.ok());
  const auto sorted = [](std::vector<TraceOp> ops) {
    std::sort(ops.begin(), ops.end(), [](const TraceOp& a, const TraceOp& b) {
      const auto key = [](const TraceOp& op) {
        return std::tuple(op.kind, op.replica, op.rank, op.iteration,
                          op.side_op, op.channel, op.pass.key(), op.start_s);
      };
      return key(a) < key(b);
    });
    return ops;
  };
  const std::vector<TraceOp> ours = sorted(trace->ops());
  const std::vector<TraceOp> theirs = sorted(activities.ops());
  REQUIRE(ours.size() == theirs.size());
  for (size_t op = 0; op < ours.size(); ++op) {
    CHECK(theirs[op].start_s == Is(ours[op].start_s));
    CHECK(theirs[op].end_s == Is(ours[op].end_s));
  }
  return *summary;
}
RunSummary Fast(const Program& program, TraceSink* trace = nullptr) {
  const auto summary = RunFast(program, {.trace = trace});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return *summary;
}

// The operations of one kind, by replica, then rank, then start.
std::vector<TraceOp> Told(const FullTrace& trace, OpKind kind) {
  std::vector<TraceOp> ops;
  for (const TraceOp& op : trace.ops()) {
    if (op.kind == kind) ops.push_back(op);
  }
  std::sort(ops.begin(), ops.end(), [](const TraceOp& a, const TraceOp& b) {
    return std::tuple(a.replica, a.rank, a.start_s) <
           std::tuple(b.replica, b.rank, b.start_s);
  });
  return ops;
}

// Two replicas of a pipeline over two nodes with one NIC each: rank 0 of both
// on the first node, rank 1 of both on the second. Everything the replicas do
// coincides, so each transfer has half a NIC all the way.
TEST_CASE("contention: two pipelines across one NIC", "[engine]") {
  for (const char* name : {"gpipe", "1f1b", "zb-h1"}) {
    const double bytes = 16;
    const double shared_s = kNicLatency + 2 * bytes / kNicBandwidth;
    const double alone_s = kNicLatency + bytes / kNicBandwidth;
    const PlanCosts costs = {
        .forward = 3, .backward_input = 5, .backward_weight = 7};
    const auto schedule = Registered(name, 2, 4);
    LowerOptions options;
    options.costs = CostsOf(*schedule, costs);
    options.hop_bytes = bytes;
    options.replicas = 2;
    options.iterations = 2;
    options.network = Fabric(SmallFabric(2, 2, 1), {0, 2, 1, 3}, 2, 2);
    const Program program = Lowered(schedule, options);
    options.network = {.hop_s = shared_s};
    const RunSummary expected = Fast(Lowered(schedule, options));
    options.network = {.hop_s = alone_s};
    const RunSummary alone = Fast(Lowered(schedule, options));

    const RunSummary fast = Fast(program);
    const RunSummary shared = Sharing(program);
    INFO(name);
    CHECK(fast.iteration_end_s == alone.iteration_end_s);
    CHECK(shared.flows == 2 * 2 * 2 * 4);
    for (int iteration = 0; iteration < 2; ++iteration) {
      CHECK(shared.iteration_end_s[iteration] ==
            Is(expected.iteration_end_s[iteration]));
    }
    for (const std::vector<RankTimes>& row : shared.times) {
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(row[rank].first_start_s ==
              Is(expected.times[0][rank].first_start_s));
        CHECK(row[rank].last_end_s == Is(expected.times[0][rank].last_end_s));
      }
    }
    if (std::string(name) == "gpipe") {
      // (m+p-1)(F+B+W) + 2(p-1)c
      CHECK(shared.iteration_end_s[0] == Is(5 * 15 + 2 * shared_s));
      CHECK(fast.iteration_end_s[0] == Is(5 * 15 + 2 * alone_s));
    }
  }
}

// Three ranks; replica 0 crosses the NIC behind rank 0, replica 1 behind
// rank 1. Its first transfer stays on NVLink, so it comes to the NIC later.
TEST_CASE("contention: a pipeline comes late to a NIC in use", "[engine]") {
  const auto schedule = Registered("gpipe", 3, 1);
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.hop_bytes = 64;
  options.replicas = 2;
  options.iterations = 1;
  options.network = Fabric(SmallFabric(2, 3, 1), {0, 3, 4, 1, 2, 5}, 3, 2);
  FullTrace trace;
  Sharing(Lowered(schedule, options), &trace);
  std::vector<TraceOp> sends = Told(trace, OpKind::kSend);
  const auto end_of = [&](int replica, int rank) {
    for (const TraceOp& op : sends) {
      if (op.replica == replica && op.rank == rank &&
          op.pass.kind() == PassKind::kForward) {
        return op.end_s;
      }
    }
    return -1.0;
  };
  // Replica 0 sends at 1, has the NIC alone from 1.5 to 3.75 (36 B), then
  // half of it (28 B).
  CHECK(end_of(0, 0) == Is(1 + 0.5 + 36 / 16.0 + 28 / 8.0));
  // Replica 1: 1 + NVLink 1.25 + 1 = 3.25, latency; 28 B at half, 36 B alone.
  CHECK(end_of(1, 0) == Is(2.25));
  CHECK(end_of(1, 1) == Is(3.25 + 0.5 + 28 / 8.0 + 36 / 16.0));
  // Replica 0 goes on over NVLink after its second forward.
  CHECK(end_of(0, 1) == Is(7.25 + 1 + 1.25));
}

// A transfer longer than the forward that makes it meets the next one of its
// own kind: four transfers of 48 B, one a second, on 16 B/s.
TEST_CASE("contention: a channel that overlaps itself", "[engine]") {
  const auto schedule = Registered("gpipe", 2, 4);
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 50, .backward_weight = 50});
  options.hop_bytes = 48;
  options.iterations = 1;
  options.network = Fabric(SmallFabric(2, 1, 1), {0, 1}, 2, 1);
  FullTrace trace;
  const RunSummary summary = Sharing(Lowered(schedule, options), &trace);
  CHECK(summary.flows == 0);  // a queue
  std::vector<TraceOp> sends = Told(trace, OpKind::kSend);
  // From 1.5, 2.5, 3.5, 4.5 on. Bytes left of the first: 32 after a second
  // alone, 24, 24 - 16/3; then a quarter of the link each.
  const double first_s = 4.5 + (24 - 16 / 3.0) / 4;
  CHECK(sends[0].end_s == Is(first_s));
  // Given to each by then, and the next one's missing bytes at a third.
  const double second_left = 48 - 8 - 16 / 3.0 - (24 - 16 / 3.0);
  const double second_s = first_s + second_left * 3 / 16;
  CHECK(sends[1].end_s == Is(second_s));
  const double third_left = 48 - 16 / 3.0 - (24 - 16 / 3.0) - second_left;
  const double third_s = second_s + third_left * 2 / 16;
  CHECK(sends[2].end_s == Is(third_s));
  // Nothing is lost: 192 bytes from 1.5 on.
  CHECK(sends[3].end_s == Is(1.5 + 192 / 16.0));
}

TEST_CASE("contention: copies on one PCIe switch", "[engine]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 O0 L0 BW0");
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 2, .backward_input = 1, .backward_weight = 1});
  options.activation_bytes = {16};
  options.iterations = 1;
  for (const int sharing : {1, 2, 4}) {
    ShapeParams params = SmallFabric(1, 4, 0);
    params.pcie_per_switch = sharing;
    options.replicas = 4;
    options.network = Fabric(params, {0, 1, 2, 3}, 1, 4);
    FullTrace trace;
    const RunSummary summary = Sharing(Lowered(schedule, options), &trace);
    INFO(sharing << " devices a switch");
    CHECK(summary.flows == 0);  // one link each way: a queue
    const double copy_s = 0.125 + sharing * 16 / 8.0;
    for (const TraceOp& op : Told(trace, OpKind::kOffload)) {
      CHECK(op.start_s == Is(2));
      CHECK(op.end_s == Is(2 + copy_s));
    }
    for (const TraceOp& op : Told(trace, OpKind::kLoad)) {
      CHECK(op.end_s == Is(2 + 2 * copy_s));
    }
    CHECK(summary.iteration_s() == Is(2 + 2 * copy_s + 2));
  }
}

// Nothing but side operations: passes take no time, transfers no bytes.
Program Idle(int pp, int dp, Network network) {
  const auto schedule = Registered("gpipe", pp, 1);
  LowerOptions options;
  options.costs = PassCosts::Uniform(pp, 1, {});
  options.replicas = dp;
  options.iterations = 1;
  options.network = std::move(network);
  return Lowered(schedule, options);
}

// Four pulls: one link of 0.2 B/s for pulls 0 and 1, one of 0.5 for 1, 2, 3.
TEST_CASE("contention: max-min over two links", "[engine]") {
  for (const double scale : {1.0, 1e9}) {
    INFO("scale " << scale);
    const auto cluster = ClusterOf(
        8,
        {{.bytes_per_s = 0.2 * scale},
         {.bytes_per_s = 0.5 * scale},
         {.bytes_per_s = 1 * scale}},
        {{4, 0, {0}}, {5, 1, {0, 1}}, {6, 2, {1, 2}}, {7, 3, {2, 1}}});
    Program program =
        Idle(8, 1, NetworkOf(cluster, {0, 1, 2, 3, 4, 5, 6, 7}, 8, 1));
    const double bytes[] = {1, 1, 1, 2};
    for (int rank = 0; rank < 4; ++rank) {
      AttachOp(program, rank, 0,
               {.kind = OpKind::kPull,
                .stream = Stream::kReceive,
                .bytes = bytes[rank] * scale,
                .peer = rank + 4});
    }
    REQUIRE(VerifyProgram(program) == absl::OkStatus());
    FullTrace trace;
    const RunSummary summary = Sharing(program, &trace);
    CHECK(summary.flows == 4);
    const std::vector<TraceOp> pulls = Told(trace, OpKind::kPull);
    REQUIRE(pulls.size() == 4);
    // Rates .1 .1 .2 .2; from 5 s on the last has .4.
    CHECK(pulls[0].end_s == Is(10));
    CHECK(pulls[1].end_s == Is(10));
    CHECK(pulls[2].end_s == Is(5));
    CHECK(pulls[3].end_s == Is(7.5));
    // Alone: the narrowest link of each.
    FullTrace alone;
    Fast(program, &alone);
    const std::vector<TraceOp> faster = Told(alone, OpKind::kPull);
    CHECK(faster[0].end_s == Is(5));
    CHECK(faster[1].end_s == Is(5));
    CHECK(faster[2].end_s == Is(2));
    CHECK(faster[3].end_s == Is(4));
  }
}

// Rank r of replica k on node k. `rings` ranks reduce at once.
RunSummary Reduce(int replicas, int rings, double bytes, bool simgrid,
                  OpKind kind = OpKind::kAllReduce) {
  std::vector<int> devices;
  for (int device = 0; device < replicas * rings; ++device) {
    devices.push_back(device);
  }
  Program program =
      Idle(rings, replicas,
           Fabric(SmallFabric(replicas, rings, 1), devices, rings, replicas));
  for (int rank = 0; rank < rings; ++rank) {
    program.groups.push_back({.ranks = {rank}});
    AttachOp(program, rank, 0,
             {.kind = kind,
              .stream = Stream::kCollective,
              .bytes = bytes,
              .group = rank});
  }
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  return simgrid ? Sharing(program) : Fast(program);
}

TEST_CASE("contention: a ring alone takes what rings take", "[engine]") {
  for (const bool simgrid : {false, true}) {
    for (const int members : {3, 4, 6}) {
      INFO(members << " members, simgrid " << simgrid);
      const double n = members;
      const double bytes = 512;
      const double step_s = kNicLatency + bytes / n / kNicBandwidth;
      CHECK(Reduce(members, 1, bytes, simgrid).iteration_s() ==
            Is(2 * (n - 1) * step_s));
      CHECK(Reduce(members, 1, bytes, simgrid, OpKind::kReduceScatter)
                .iteration_s() == Is((n - 1) * step_s));
      CHECK(Reduce(members, 1, bytes, simgrid, OpKind::kAllGather)
                .iteration_s() == Is((n - 1) * step_s));
    }
  }
}

TEST_CASE("contention: rings on one NIC share its bandwidth", "[engine]") {
  const double bytes = 512;
  for (const int members : {2, 3, 4}) {
    for (const int rings : {2, 3}) {
      INFO(members << " members, " << rings << " rings");
      const double n = members;
      const double steps = 2 * (n - 1);
      const double bytes_s = 2 * (n - 1) / n * bytes / kNicBandwidth;
      CHECK(Reduce(members, rings, bytes, /*simgrid=*/false).iteration_s() ==
            Is(steps * kNicLatency + bytes_s));
      CHECK(Reduce(members, rings, bytes, /*simgrid=*/true).iteration_s() ==
            Is(steps * kNicLatency + rings * bytes_s));
    }
  }
}

// Rank r of replica k on node (k + r) mod 3: the last gradient of rank 1 and
// the ring of its chunk cross the same NICs, both ways.
TEST_CASE("contention: a ring and a gradient share NICs", "[engine]") {
  const auto schedule = Registered("1f1b", 2, 2);
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 1, .backward_input = 1, .backward_weight = 1});
  options.hop_bytes = 32;
  options.replicas = 3;
  options.data_parallel = DataParallel::kDdp;
  options.gradient_bytes = {0, 96};
  options.iterations = 1;
  options.network = Fabric(SmallFabric(3, 2, 1), {0, 3, 2, 5, 4, 1}, 2, 3);
  FullTrace trace;
  Sharing(Lowered(schedule, options), &trace);
  // Activations leave at 1 and 2 and share their NIC from 2.5 to 4.5. So rank
  // 1 runs F0 from 4.5 on and is done with BW1 at 10.5. Its gradient is on
  // the NIC from 11 on, alone (24 B) until the ring's four latencies are over
  // at 12.5; then 8 B at half speed.
  int checked = 0;
  for (const TraceOp& op : Told(trace, OpKind::kSend)) {
    if (op.rank != 1 || op.pass.microbatch() != 1) continue;
    ++checked;
    CHECK(op.start_s == Is(10.5));
    CHECK(op.end_s == Is(13.5));
  }
  // 128 B an edge: 8 B by 13.5, the rest at 16 B/s.
  for (const TraceOp& op : Told(trace, OpKind::kAllReduce)) {
    if (op.rank != 1) continue;
    ++checked;
    CHECK(op.start_s == Is(10.5));
    CHECK(op.end_s == Is(21));
  }
  CHECK(checked == 6);
}

}  // namespace
}  // namespace pipewright::contention_test
