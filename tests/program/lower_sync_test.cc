// Gradient reduction at SYNC, between the directions of a bidirectional
// schedule, and over several nodes.
#include <catch2/catch.hpp>
#include <memory>

#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/lower.h"
#include "sim/program/network_time.h"
#include "sim/topology/registry.h"
#include "tests/support/lowering.h"
#include "tests/support/random_program.h"

namespace pipewright::lower_sync_test {
namespace {

LowerOptions Options(const Schedule& schedule) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 8, .backward_input = 8, .backward_weight = 8});
  options.data_parallel = DataParallel::kDdp;
  options.gradient_bytes.assign(schedule.stages(), 64);
  options.iterations = 1;
  return options;
}

// Eight data-parallel replicas, one a device.
LowerOptions OnEightDevices(const Schedule& schedule,
                            const ShapeParams& shape) {
  LowerOptions options = Options(schedule);
  options.replicas = 8;
  options.gradient_bytes = {1024};
  auto cluster = BuildCluster(shape);
  REQUIRE(cluster.ok());
  options.network = NetworkOf(std::make_shared<Cluster>(*std::move(cluster)),
                              {0, 1, 2, 3, 4, 5, 6, 7}, 1, 8);
  return options;
}

TEST_CASE("lower: SYNC says where a chunk is reduced", "[program]") {
  const auto schedule = Parsed(
      "pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 BW0.1 BW0.0 SYNC0.1 SYNC0.0");
  LowerOptions options = Options(*schedule);
  options.replicas = 2;
  CHECK_THAT(ToString(Lowered(schedule, options)),
             Catch::Contains("BW0.1 BW0.0 all-reduce.1@g0 all-reduce.0@g0"));
  const auto early = Parsed(
      "pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 SYNC0.1 BW0.1 BW0.0 SYNC0.0");
  const absl::StatusOr<Program> refused = Lower(early, options);
  REQUIRE(!refused.ok());
  CHECK(refused.status().code() == absl::StatusCode::kFailedPrecondition);
}

TEST_CASE("lower: the replicas of a schedule reduce their stages together",
          "[program]") {
  const auto schedule = Parsed(
      "pp 2 vpp 1 microbatches 2 replicas 2\n"
      "0: aF0 bF0 bBW0 aBW0\n1: bF0 aF0 aBW0 bBW0");
  const LowerOptions options = Options(*schedule);
  const Program program = Lowered(schedule, options);
  REQUIRE(program.groups.size() == 1);
  CHECK(program.groups[0].ranks == std::vector<int>{0, 1});
  // Stage 0 (replica a on rank 0, b on rank 1) and stage 1, in one order.
  int reductions = 0;
  for (int rank = 0; rank < 2; ++rank) {
    for (const SideOp& op : program.ranks[rank].side_ops) {
      reductions += op.kind == OpKind::kAllReduce ? 1 : 0;
    }
  }
  CHECK(reductions == 4);
  LowerOptions none = options;
  none.data_parallel = DataParallel::kNone;
  for (const auto run : {&RunFast, &RunSimgrid}) {
    const absl::StatusOr<RunSummary> with = run(program, {});
    const absl::StatusOr<RunSummary> without = run(Lowered(schedule, none), {});
    REQUIRE(with.ok());
    REQUIRE(without.ok());
    CHECK(with->iterations() == 1);
  }
  LowerOptions sharded = options;
  sharded.data_parallel = DataParallel::kZero1;
  CHECK(!Lower(schedule, sharded).ok());
}

// Rank 0 is done with stage 0 first, rank 1 with stage 1. The sum of the
// positions puts stage 0 first, so on rank 1 stage 1 waits for it.
TEST_CASE("lower: two ranks reduce their stages in one order", "[program]") {
  const auto schedule = Parsed(
      "pp 2 vpp 1 microbatches 2 replicas 2\n"
      "0: aF0 aBW0 bF0 bBW0\n1: aF0 aB0 bF0 aW0 bBW0");
  const Program program = Lowered(schedule, Options(*schedule));
  const auto is_behind = [&](int rank, int stage) {
    const RankProgram& of = program.ranks[rank];
    for (const Attachment& each : of.attachments) {
      const SideOp& op = of.side_ops[each.side_op];
      if (op.kind == OpKind::kAllReduce && op.stage == stage) {
        return each.position;
      }
    }
    return int64_t{-1};
  };
  CHECK(is_behind(0, 0) == 2);
  CHECK(is_behind(0, 1) == 4);
  CHECK(is_behind(1, 0) == 5);
  CHECK(is_behind(1, 1) == 5);
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<int> stages;
    for (const SideOp& op : program.ranks[rank].side_ops) {
      if (op.kind == OpKind::kAllReduce) stages.push_back(op.stage);
    }
    CHECK(stages == std::vector<int>{0, 1});
  }
}

// Two nodes of four devices with a card each: four rings, and each leaves the
// nodes through cards of its own. 16 B/s, latency 2 * 0.25.
TEST_CASE("network: a group with several devices a node runs several rings",
          "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  const LowerOptions options = OnEightDevices(*schedule, SmallFabric(2, 4, 4));
  const Program program = Lowered(schedule, options);
  const CollectivePlan plan =
      PlanCollective(program, OpKind::kAllReduce, 1024,
                     GroupMembers(program, program.groups[0], 0));
  CHECK(plan.ring);
  // Four rings of eight edges over two links each; a card has one of them.
  int flows = 0;
  for (const LinkLoad& load : plan.loads) {
    flows += load.flows;
    if (program.network.cluster->links()[load.link].bytes_per_s == 16) {
      CHECK(load.flows == 1);
    }
  }
  CHECK(flows == 4 * 8 * 2);
  // 2 * 7/8 of a quarter of the buffer over each edge.
  CHECK(plan.bytes_per_edge == 2.0 * 7 / 8 * 1024 / 4);
  CHECK(plan.seconds == Approx(14 * 0.5 + plan.bytes_per_edge / 16));
  const absl::StatusOr<RunSummary> fast = RunFast(program, {});
  const absl::StatusOr<RunSummary> simgrid = RunSimgrid(program, {});
  REQUIRE(fast.ok());
  REQUIRE(simgrid.ok());
  CHECK(simgrid->iteration_s() == Approx(fast->iteration_s()).epsilon(1e-9));
}

// The same with links inside the nodes that are the narrowest. Of the four
// rings three leave a device over its NVLink and one over its card.
TEST_CASE("network: edges of several rings share a device's NVLink",
          "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  ShapeParams shape = SmallFabric(2, 4, 4);
  shape.nvlink.bytes_per_s = 24;
  const LowerOptions options = OnEightDevices(*schedule, shape);
  const Program program = Lowered(schedule, options);
  for (const auto& [kind, steps] :
       {std::pair(OpKind::kAllReduce, 14), {OpKind::kReduceScatter, 7}}) {
    const CollectivePlan plan = PlanCollective(
        program, kind, 1024, GroupMembers(program, program.groups[0], 0));
    REQUIRE(plan.ring);
    // 7/8 of a quarter of the buffer, there and back; 24 / 3 B/s, which is
    // less than the card's 16.
    CHECK(plan.bytes_per_edge == steps / 8.0 * 1024 / 4);
    CHECK(plan.seconds == Approx(steps * 0.5 + plan.bytes_per_edge / 8));
  }
  const absl::StatusOr<RunSummary> fast = RunFast(program, {});
  const absl::StatusOr<RunSummary> simgrid = RunSimgrid(program, {});
  REQUIRE(fast.ok());
  REQUIRE(simgrid.ok());
  CHECK(simgrid->iteration_s() == Approx(fast->iteration_s()).epsilon(1e-9));
}

// Two replicas of a rank with tensor and context parallelism 2 on two nodes of
// four: devices 0, 2, 4 and 6 hold one half of the parameters, the odd ones the
// other. Two rings for each half, of half of the buffer.
TEST_CASE("network: gradients go over replicas and parts of a context",
          "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  LowerOptions options = Options(*schedule);
  options.replicas = 2;
  options.gradient_bytes = {1024};
  options.network =
      NetworkOf(std::make_shared<Cluster>(*BuildCluster(SmallFabric(2, 4, 4))),
                {0, 4}, 1, 2, 4);
  options.network.context_parallel = 2;
  const Program program = Lowered(schedule, options);
  const std::vector<Member> members =
      GroupMembers(program, program.groups[0], 0);
  CHECK(DevicesThatMeet(program.network, members) ==
        std::vector<std::vector<int>>{{0, 2, 4, 6}, {1, 3, 5, 7}});
  const CollectivePlan plan =
      PlanCollective(program, OpKind::kAllReduce, 1024, members);
  CHECK(plan.ring);
  CHECK(plan.bytes_per_edge == 2 * 3.0 / 4 * 1024 / 2);
  CHECK(plan.seconds == 2 * 3 * 0.5 + plan.bytes_per_edge / 16);
  for (const LinkLoad& load : plan.loads) {
    if (program.network.cluster->links()[load.link].bytes_per_s == 16) {
      CHECK(load.flows == 1);
    }
  }
  const double alone_s = 8 + 16 + plan.seconds;
  for (const auto& run : {RunFast, RunSimgrid}) {
    const absl::StatusOr<RunSummary> summary = run(program, {});
    REQUIRE(summary.ok());
    CHECK(summary->iteration_s() == Approx(alone_s).epsilon(1e-9));
  }
}

TEST_CASE("lower: one replica reduces over the parts of its context",
          "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  LowerOptions options = Options(*schedule);
  options.parameter_bytes = {512};
  options.network =
      NetworkOf(std::make_shared<Cluster>(*BuildCluster(SmallFabric(1, 4, 0))),
                {0}, 1, 1, 4);
  CHECK(Lowered(schedule, options).groups.empty());
  options.network.context_parallel = 2;
  // Devices 0 and 2, and 1 and 3, on NVLink with 64 B/s.
  const double scatter_s = 0.25 + 1.0 / 2 * 64 / 64;
  for (const auto& [mode, seconds] :
       {std::pair(DataParallel::kDdp, 2 * scatter_s),
        std::pair(DataParallel::kZero2, scatter_s)}) {
    options.data_parallel = mode;
    const Program program = Lowered(schedule, options);
    for (const auto& run : {RunFast, RunSimgrid}) {
      const absl::StatusOr<RunSummary> summary = run(program, {});
      REQUIRE(summary.ok());
      CHECK(summary->iteration_s() ==
            Approx(8 + 16 + seconds +
                   (mode == DataParallel::kZero2 ? 0.25 + 0.5 * 512 / 64 : 0))
                .epsilon(1e-9));
    }
  }
  // Pulls and pushes are of replicas.
  options.data_parallel = DataParallel::kOdc;
  options.layers.stages = {{{.parameters = 1, .stored = 1}}};
  CHECK(Lowered(schedule, options).groups.empty());
}

TEST_CASE("lower: shards of several replicas lie across, copies near by",
          "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  LowerOptions options = Options(*schedule);
  options.parameter_bytes = {512};
  options.data_parallel = DataParallel::kFsdp;
  options.shard_blocks = ShardBlocks::kLayer;
  options.replicas = 8;
  options.layers.stages = {{{.parameters = 1, .stored = 1}}};
  options.layers.shard_group = 4;
  options.layers.near_group = 2;
  options.network.context_parallel = 2;
  const Program program = Lowered(schedule, options);
  double across = 0;
  for (const SideOp& op : program.ranks[0].side_ops) {
    if (op.group < 0) continue;
    const Group& group = program.groups[op.group];
    CHECK(group.contexts == (!group.across && group.part != 2));
    const size_t members = GroupMembers(program, group, 0).size();
    if (op.kind == OpKind::kReduceScatter) CHECK(members == 4 * 2);
    if (!group.across) continue;
    CHECK(members == 2);
    across = op.bytes;
  }
  CHECK(across == 64.0 / (4 * 2));
}

// The last of N iterations meets the next one on the links, as those before.
TEST_CASE("engine: a period does not depend on where the run ends",
          "[engine]") {
  for (uint32_t seed = 1; seed <= 150; ++seed) {
    absl::StatusOr<RandomProgram> made =
        MakeRandomProgram(seed, {.holding_rules = false, .copies = false});
    if (!made.ok() || made->program.network.cluster == nullptr) continue;
    INFO(made->about);
    made->program.iterations = 5;
    const absl::StatusOr<RunSummary> longer = RunSimgrid(made->program, {});
    made->program.iterations = 4;
    const absl::StatusOr<RunSummary> shorter = RunSimgrid(made->program, {});
    if (!longer.ok()) continue;
    REQUIRE(shorter.ok());
    for (int iteration = 0; iteration < 4; ++iteration) {
      CHECK(shorter->iteration_end_s[iteration] ==
            Approx(longer->iteration_end_s[iteration]).epsilon(1e-9));
    }
  }
}

TEST_CASE("lower: reduction waits for the last pass where nothing overlaps",
          "[program]") {
  const auto schedule =
      Parsed("pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 BW0.1 BW0.0");
  LowerOptions options = Options(*schedule);
  options.replicas = 2;
  CHECK_THAT(ToString(Lowered(schedule, options)),
             Catch::Contains("BW0.1 all-reduce.1@g0 BW0.0 all-reduce.0@g0"));
  options.overlap_gradients = false;
  CHECK_THAT(ToString(Lowered(schedule, options)),
             Catch::Contains("BW0.1 BW0.0 all-reduce.1@g0 all-reduce.0@g0"));
  // SYNC stays where the schedule has it.
  const auto synced =
      Parsed("pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 BW0.1 SYNC0.1 BW0.0");
  CHECK_THAT(ToString(Lowered(synced, options)),
             Catch::Contains("BW0.1 all-reduce.1@g0 BW0.0 all-reduce.0@g0"));
}

}  // namespace
}  // namespace pipewright::lower_sync_test
