// Copies that have a PCIe switch to themselves, by hand.
#include <algorithm>
#include <catch2/catch.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/topology/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::copies_in_turn_test {
namespace {

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

Approx Is(double value) { return Approx(value).epsilon(kSame); }

// SmallFabric: PCIe 8 B/s with 0.125 s.
Network Fabric(const ShapeParams& params, std::vector<int> devices, int pp,
               int dp) {
  auto cluster = BuildCluster(params);
  INFO(cluster.status());
  REQUIRE(cluster.ok());
  return NetworkOf(std::make_shared<Cluster>(*std::move(cluster)),
                   std::move(devices), pp, dp);
}

RunSummary Simgrid(const Program& program, TraceSink* trace = nullptr) {
  const auto summary = RunSimgrid(program, {.trace = trace});
  INFO(summary.status());
  REQUIRE(summary.ok());
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

// PipeOffload's staggered copies: each has all of the link, in turn.
TEST_CASE("contention: copies on one PCIe switch in turn", "[engine]") {
  const auto schedule =
      Parsed("pp 1 vpp 1 microbatches 1\n0: F0 O0 FREE0 L0 BW0");
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 2, .backward_input = 1, .backward_weight = 1});
  options.activation_bytes = {16};
  options.iterations = 1;
  options.copies_in_turn = true;
  ShapeParams params = SmallFabric(1, 4, 0);
  params.pcie_per_switch = 2;
  options.replicas = 4;
  // A root and memories that are wide keep nobody waiting.
  if (GENERATE(false, true)) {
    params.own["root_bandwidth"] = "1GBps";
    params.host.bytes_per_s = 1e9;
  }
  options.network = Fabric(params, {0, 1, 2, 3}, 1, 4);
  FullTrace trace;
  const RunSummary summary = Simgrid(Lowered(schedule, options), &trace);
  constexpr double kCopy = 0.125 + 16 / 8.0;
  const std::vector<TraceOp> out = Told(trace, OpKind::kOffload);
  const std::vector<TraceOp> in = Told(trace, OpKind::kLoad);
  REQUIRE(out.size() == 4);
  REQUIRE(in.size() == 4);
  for (int replica = 0; replica < 4; ++replica) {
    CAPTURE(replica);
    const int turn = replica % 2;
    CHECK(out[replica].start_s == Is(2 + turn * kCopy));
    CHECK(out[replica].end_s == Is(2 + (turn + 1) * kCopy));
    // The other direction is free by then.
    CHECK(in[replica].start_s == Is(out[replica].end_s));
    CHECK(in[replica].end_s == Is(2 + (turn + 2) * kCopy));
    CHECK(summary.times[replica][0].late_free_s == Is((turn + 1) * kCopy));
    CHECK(summary.times[replica][0].late_load_s == Is(kCopy));
  }
  CHECK(summary.iteration_s() == Is(2 + 3 * kCopy + 2));
  // Each copy has the link alone where nothing is shared.
  const RunSummary fast = Fast(Lowered(schedule, options));
  CHECK(fast.iteration_s() == Is(2 + 2 * kCopy + 2));
}

// The memory of the host is in the routes of both directions.
TEST_CASE("contention: in turn both directions of a device run at once",
          "[engine]") {
  const auto schedule =
      Parsed("pp 1 vpp 1 microbatches 2\n0: F0 O0 F1 O1 L0 BW0 L1 BW1");
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 2, .backward_input = 1, .backward_weight = 1});
  options.activation_bytes = {16};
  options.iterations = 1;
  options.copies_in_turn = true;
  ShapeParams params = SmallFabric(1, 1, 0);
  params.host.bytes_per_s = 1e9;
  options.network = Fabric(params, {0}, 1, 1);
  FullTrace trace;
  Simgrid(Lowered(schedule, options), &trace);
  constexpr double kCopy = 0.125 + 16 / 8.0;
  const std::vector<TraceOp> out = Told(trace, OpKind::kOffload);
  const std::vector<TraceOp> in = Told(trace, OpKind::kLoad);
  REQUIRE(out.size() == 2);
  REQUIRE(in.size() == 2);
  CHECK(out[1].start_s == Is(2 + kCopy));
  CHECK(in[0].start_s == Is(2 + kCopy));
  CHECK(out[1].end_s == Is(2 + 2 * kCopy));
  CHECK(in[0].end_s == Is(2 + 2 * kCopy));
}

}  // namespace
}  // namespace pipewright::copies_in_turn_test
