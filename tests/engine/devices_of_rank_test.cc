// Every device of a rank sends. What the engines make of all of them at once is
// held against runs in which each device is a rank, or a replica, of its own,
// and against times written down by hand.
#include <algorithm>
#include <catch2/catch.hpp>
#include <utility>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/network_time.h"
#include "sim/topology/mapping.h"
#include "tests/support/device_flows.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::devices_of_rank_test {
namespace {

constexpr double kSame = 1e-9;  // relative (docs/architecture.md, Tests)

Approx Is(double value) { return Approx(value).epsilon(kSame); }

RunSummary Simgrid(const Program& program) {
  const auto summary = RunSimgrid(program, {});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return *summary;
}
RunSummary Fast(const Program& program) {
  const auto summary = RunFast(program, {});
  INFO(summary.status());
  REQUIRE(summary.ok());
  return *summary;
}

std::shared_ptr<const Cluster> Built(const ShapeParams& params) {
  auto cluster = BuildCluster(params);
  INFO(cluster.status());
  REQUIRE(cluster.ok());
  return std::make_shared<Cluster>(*std::move(cluster));
}

std::vector<int> Every(int stride, int count) {
  std::vector<int> devices(count);
  for (int index = 0; index < count; ++index) devices[index] = index * stride;
  return devices;
}

// Nothing but what is attached: passes take no time, transfers no bytes.
Program Idle(int pp, int dp, Network network) {
  const auto schedule = Registered("gpipe", pp, 1);
  LowerOptions options;
  options.costs = PassCosts::Uniform(pp, 1, {});
  options.replicas = dp;
  options.iterations = 1;
  options.network = std::move(network);
  return Lowered(schedule, options);
}

// Hops and copies of a pipeline. `each_alone`: every device of a rank is the
// rank of a replica of its own.
Program Pipeline(const ShapeParams& params, int pp, int dp, int per_rank,
                 bool each_alone) {
  std::vector<int> devices;
  for (int replica = 0; replica < dp; ++replica) {
    for (int index = 0; index < (each_alone ? per_rank : 1); ++index) {
      for (int rank = 0; rank < pp; ++rank) {
        devices.push_back((rank * dp + replica) * per_rank + index);
      }
    }
  }
  const auto schedule = Parsed(
      "pp 2 vpp 1 microbatches 2\n"
      "0: F0 O0 F1 L0 BW0 BW1\n"
      "1: F0 O0 F1 L0 BW0 BW1");
  LowerOptions options;
  options.costs = CostsOf(
      *schedule, {.forward = 10, .backward_input = 10, .backward_weight = 10});
  options.hop_bytes = 24;  // never two of a rank's on their way
  options.activation_bytes = {12, 20};
  options.iterations = 2;
  options.replicas = each_alone ? dp * per_rank : dp;
  options.network = NetworkOf(Built(params), std::move(devices), pp,
                              options.replicas, each_alone ? 1 : per_rank);
  return Lowered(schedule, options);
}

TEST_CASE("devices of a rank: as many pipelines of one device each",
          "[engine]") {
  struct Case {
    int nodes, devices_per_node, nics, per_switch, per_rank, dp;
  };
  for (const Case& each :
       {Case{2, 4, 1, 1, 4, 1}, Case{2, 4, 2, 4, 4, 1}, Case{2, 4, 4, 2, 4, 1},
        Case{2, 4, 1, 2, 2, 2}, Case{2, 8, 2, 8, 4, 2}, Case{4, 2, 1, 2, 2, 2},
        Case{1, 4, 0, 2, 2, 1}, Case{2, 3, 1, 3, 3, 1}}) {
    INFO(each.nodes << " nodes, " << each.nics << " NICs, " << each.per_rank
                    << " devices a rank, dp " << each.dp);
    ShapeParams params =
        SmallFabric(each.nodes, each.devices_per_node, each.nics);
    params.pcie_per_switch = each.per_switch;
    const Program program =
        Pipeline(params, 2, each.dp, each.per_rank, /*each_alone=*/false);
    const RunSummary alone = Simgrid(
        Pipeline(params, 2, each.dp, each.per_rank, /*each_alone=*/true));
    const RunSummary shared = Simgrid(program);
    const RunSummary fast = Fast(program);
    for (int iteration = 0; iteration < 2; ++iteration) {
      CHECK(shared.iteration_end_s[iteration] ==
            Is(alone.iteration_end_s[iteration]));
      // One replica meets nobody else.
      if (each.dp > 1) continue;
      CHECK(fast.iteration_end_s[iteration] ==
            Is(alone.iteration_end_s[iteration]));
    }
    for (int replica = 0; replica < each.dp; ++replica) {
      for (int rank = 0; rank < 2; ++rank) {
        CHECK(shared.times[replica][rank].last_end_s ==
              Is(alone.times[replica * each.per_rank][rank].last_end_s));
      }
    }
  }
}

// One replica, 4 devices a rank: 24 B each over one NIC of 16 B/s.
TEST_CASE("devices of a rank: a hop by hand", "[engine]") {
  const auto seconds = [](int nics) {
    const Program program =
        Pipeline(SmallFabric(2, 4, nics), 2, 1, 4, /*each_alone=*/false);
    return TransferSeconds(program, program.channels[0], 0);
  };
  CHECK(seconds(4) == 0.5 + 24 / 16.0);
  CHECK(seconds(2) == 0.5 + 2 * 24 / 16.0);
  CHECK(seconds(1) == 0.5 + 4 * 24 / 16.0);
}

// `members` replicas of `per_rank` devices each reduce `bytes` a device.
Program Reduce(const ShapeParams& params, int members, int per_rank,
               double bytes) {
  Program program = Idle(
      1, members,
      NetworkOf(Built(params), Every(per_rank, members), 1, members, per_rank));
  program.groups.push_back({.ranks = {0}});
  AttachOp(program, 0, 0,
           {.kind = OpKind::kAllReduce,
            .stream = Stream::kCollective,
            .bytes = bytes,
            .group = 0});
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  return program;
}

// The same with a rank for each device, and a group for each index.
Program ReduceApart(const ShapeParams& params, int members, int per_rank,
                    double bytes) {
  const int devices = members * per_rank;
  Program program =
      Idle(devices, 1, NetworkOf(Built(params), Every(1, devices), devices, 1));
  for (int index = 0; index < per_rank; ++index) {
    Group group = {.span = Group::Span::kRanks};
    for (int member = 0; member < members; ++member) {
      group.ranks.push_back(member * per_rank + index);
      AttachOp(program, group.ranks.back(), 0,
               {.kind = OpKind::kAllReduce,
                .stream = Stream::kCollective,
                .bytes = bytes,
                .group = index});
    }
    program.groups.push_back(std::move(group));
  }
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  return program;
}

// Every flow a push of its own, all at once.
double PushedSeconds(const ShapeParams& params, int devices,
                     const std::vector<DeviceFlow>& flows,
                     const std::vector<std::pair<int, int>>& ends) {
  Program program =
      Idle(devices, 1, NetworkOf(Built(params), Every(1, devices), devices, 1));
  constexpr Stream kStreams[] = {Stream::kSend, Stream::kReceive,
                                 Stream::kCollective, Stream::kD2H};
  std::vector<int> pushes(devices, 0);
  for (size_t index = 0; index < flows.size(); ++index) {
    const auto [from, to] = ends[index];
    REQUIRE(pushes[from] < 4);
    AttachOp(program, from, 0,
             {.kind = OpKind::kPush,
              .stream = kStreams[pushes[from]++],
              .bytes = flows[index].bytes,
              .peer = to});
  }
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  return Simgrid(program).iteration_s();
}

TEST_CASE("devices of a rank: rings share links as rings of ranks do",
          "[engine]") {
  for (const int nics : {1, 2, 4}) {
    for (const int members : {2, 3, 4}) {
      for (const int per_rank : {1, 2, 4}) {
        INFO(nics << " NICs, " << members << " members of " << per_rank);
        const int nodes = (members * per_rank + 3) / 4;
        if (nodes > 1 && members * per_rank % 4 != 0) continue;
        const ShapeParams params = SmallFabric(nodes, 4, nodes > 1 ? nics : 0);
        const double bytes = 4096;
        const Program program = Reduce(params, members, per_rank, bytes);
        const double fast_s = Fast(program).iteration_s();
        CHECK(Simgrid(program).iteration_s() == Is(fast_s));
        CHECK(Simgrid(ReduceApart(params, members, per_rank, bytes))
                  .iteration_s() == Is(fast_s));
      }
    }
  }
}

// Four nodes with one NIC, a device of each of two ranks on every one: two
// rings on the same NICs, one of which has more bytes.
TEST_CASE("devices of a rank: two rings as pushes along their edges",
          "[engine]") {
  for (const int per_rank : {1, 2}) {
    INFO(per_rank << " devices a rank");
    const int members = 4;
    const int per_node = 2 * per_rank;
    ShapeParams params = SmallFabric(members, per_node, 1);
    params.nic.latency_s = params.nvlink.latency_s = 0;
    std::vector<int> devices;
    for (int replica = 0; replica < members; ++replica) {
      for (const int rank : {0, 1}) {
        devices.push_back(replica * per_node + rank * per_rank);
      }
    }
    Program program = Idle(
        2, members, NetworkOf(Built(params), devices, 2, members, per_rank));
    const double bytes[] = {512, 1280};
    std::vector<DeviceFlow> flows;
    std::vector<std::pair<int, int>> ends;
    for (const int rank : {0, 1}) {
      program.groups.push_back({.ranks = {rank}});
      AttachOp(program, rank, 0,
               {.kind = OpKind::kAllGather,
                .stream = Stream::kCollective,
                .bytes = bytes[rank],
                .group = rank});
      for (int replica = 0; replica < members; ++replica) {
        for (int index = 0; index < per_rank; ++index) {
          const int from =
              program.network.mapping->DeviceOf(replica, rank, index);
          const int to = program.network.mapping->DeviceOf(
              (replica + 1) % members, rank, index);
          flows.push_back({{}, bytes[rank] * 3 / 4});
          ends.emplace_back(from, to);
        }
      }
    }
    REQUIRE(VerifyProgram(program) == absl::OkStatus());
    const double pushed_s =
        PushedSeconds(params, members * per_node, flows, ends);
    CHECK(Simgrid(program).iteration_s() == Is(pushed_s));
    // Half of each NIC until the first has ended.
    CHECK(pushed_s == Is(per_rank * (512 + 1280) * 0.75 / 16));
    CHECK(Fast(program).iteration_s() == Is(per_rank * 1280 * 0.75 / 16));
  }
}

// A rank that reaches over the end of a node: its first device stays inside.
TEST_CASE("devices of a rank: the slowest of them decides", "[engine]") {
  Program program =
      Idle(2, 1, NetworkOf(Built(SmallFabric(2, 3, 1)), {0, 2}, 2, 1, 2));
  AttachOp(
      program, 0, 0,
      {.kind = OpKind::kPush, .stream = Stream::kSend, .bytes = 32, .peer = 1});
  // Device 0 to 2 over NVLink, 1 to 3 over the NICs.
  CHECK(Fast(program).iteration_s() == 0.5 + 32 / 16.0);
  CHECK(Simgrid(program).iteration_s() == Is(0.5 + 32 / 16.0));
}

TEST_CASE("devices of a rank: names of replicas do not matter", "[engine]") {
  int contended = 0;
  for (const int per_rank : {1, 2}) {
    const auto run = [&](std::vector<int> replicas) {
      std::vector<int> devices;
      for (const int replica : replicas) {
        for (const int rank : {0, 1, 2}) {
          devices.push_back((rank * 3 + replica) * per_rank);
        }
      }
      const auto schedule = Registered("zb-h1", 3, 6);
      LowerOptions options;
      options.costs = CostsOf(
          *schedule, {.forward = 1, .backward_input = 2, .backward_weight = 1});
      options.hop_bytes = 12;
      options.replicas = 3;
      options.data_parallel = DataParallel::kFsdp;
      options.gradient_bytes = {20, 40, 60};
      options.parameter_bytes = {10, 20, 30};
      options.iterations = 2;
      options.network = NetworkOf(Built(SmallFabric(3, 3 * per_rank, 1)),
                                  devices, 3, 3, per_rank);
      const Program program = Lowered(schedule, options);
      contended += Simgrid(program).iteration_s() >
                           Fast(program).iteration_s() * (1 + kSame)
                       ? 1
                       : 0;
      return std::pair(Fast(program), Simgrid(program));
    };
    const std::vector<int> order = {2, 0, 1};
    const auto [fast, simgrid] = run({0, 1, 2});
    const auto [fast_too, simgrid_too] = run(order);
    CHECK(fast.iteration_s() == Is(fast_too.iteration_s()));
    CHECK(simgrid.iteration_s() == Is(simgrid_too.iteration_s()));
    for (int replica = 0; replica < 3; ++replica) {
      for (int rank = 0; rank < 3; ++rank) {
        CHECK(simgrid.times[order[replica]][rank].last_end_s ==
              Is(simgrid_too.times[replica][rank].last_end_s));
      }
    }
  }
  CHECK(contended > 0);
}

}  // namespace
}  // namespace pipewright::devices_of_rank_test
