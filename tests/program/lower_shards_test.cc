// zero2 and fsdp: what is gathered and scattered with the passes, and how
// often.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "sim/program/network_time.h"
#include "sim/topology/registry.h"
#include "sim/trace/trace.h"
#include "tests/support/json.h"
#include "tests/support/lowering.h"
#include "tests/support/oracle.h"
#include "tests/support/random_program.h"

namespace pipewright::lower_shards_test {
namespace {

LowerOptions Sharded(const Schedule& schedule, DataParallel data_parallel,
                     ShardBlocks blocks) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 8, .backward_input = 8, .backward_weight = 8});
  options.data_parallel = data_parallel;
  options.shard_blocks = blocks;
  options.replicas = 2;
  options.gradient_bytes.assign(schedule.stages(), 64);
  options.parameter_bytes.assign(schedule.stages(), 32);
  options.iterations = 1;
  return options;
}

// Bytes that one rank moves by each kind in one iteration.
std::map<OpKind, double> BytesOf(const Program& program, int rank) {
  FullTrace trace;
  REQUIRE(RunFast(program, {.trace = &trace}).ok());
  std::map<OpKind, double> bytes;
  for (const TraceOp& op : trace.ops()) {
    if (op.rank == rank && op.replica == 0) bytes[op.kind] += op.bytes;
  }
  return bytes;
}

TEST_CASE("shards: fsdp as text", "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 2\n0: F0 B0 W0 F1 BW1");
  LowerOptions options =
      Sharded(*schedule, DataParallel::kFsdp, ShardBlocks::kPass);
  options.optimizer = OptimizerMode::kSynchronised;
  CHECK_THAT(
      ToString(Lowered(schedule, options)),
      Catch::Contains(
          "0: all-gather.0@g0 all-gather.0@g0 F0 all-gather.0@g0 B0 W0 "
          "reduce-scatter.0@g0 all-gather.0@g0 F1 BW1 reduce-scatter.0@g0 wait "
          "all-reduce@g1 optimizer\n"));
  // Every data-parallel copy has a part of the gradients' norm.
  CHECK(Lowered(schedule, options).groups[1].span == Group::Span::kAll);
  options.data_parallel = DataParallel::kZero2;
  CHECK_THAT(ToString(Lowered(schedule, options)),
             Catch::Contains("0: wait.0[1..] F0 B0 W0 reduce-scatter.0@g0 F1 "
                             "BW1 reduce-scatter.0@g0 wait all-reduce@g1 "
                             "optimizer all-gather.0@g0\n"));
  options.shard_blocks = ShardBlocks::kUnit;
  CHECK_THAT(
      std::string(Lower(schedule, options).status().message()),
      Catch::Contains("strategy.shard_blocks") && Catch::Contains("no units"));
  const auto both = Parsed(
      "pp 2 vpp 1 microbatches 2 replicas 2\n"
      "0: aF0 bF0 bBW0 aBW0\n1: bF0 aF0 aBW0 bBW0");
  CHECK(!Lower(both, Sharded(*both, DataParallel::kFsdp, ShardBlocks::kPass))
             .ok());
}

// Per microbatch two gathers and one scatter of every stage (ZeRO-3).
TEST_CASE("shards: bytes are those of the passes", "[program]") {
  for (const char* name : {"1f1b", "zb-h1", "interleaved-1f1b"}) {
    const int vpp = name == std::string("interleaved-1f1b") ? 2 : 1;
    const auto schedule = Registered(name, 2, 8, vpp);
    const auto bytes = [&](DataParallel data_parallel) {
      return BytesOf(Lowered(schedule, Sharded(*schedule, data_parallel,
                                               ShardBlocks::kPass)),
                     1);
    };
    auto fsdp = bytes(DataParallel::kFsdp);
    CHECK(fsdp[OpKind::kAllGather] == 2.0 * vpp * 8 * 32);
    CHECK(fsdp[OpKind::kReduceScatter] == 1.0 * vpp * 8 * 64);
    auto zero2 = bytes(DataParallel::kZero2);
    CHECK(zero2[OpKind::kAllGather] == 1.0 * vpp * 32);
    CHECK(zero2[OpKind::kReduceScatter] == 1.0 * vpp * 8 * 64);
  }
}

// Nothing flows back through frozen layers in front of the first trained one.
TEST_CASE("shards: frozen layers in front are gathered for forwards alone",
          "[program]") {
  const auto schedule = Registered("1f1b", 3, 8);
  for (const ShardBlocks blocks : {ShardBlocks::kPass, ShardBlocks::kLayer}) {
    LowerOptions options = Sharded(*schedule, DataParallel::kFsdp, blocks);
    const LayerShare frozen = {.parameters = 0, .stored = 1};
    // The last one is frozen too, but gradients go through it.
    options.layers.stages = {{frozen, frozen}, {frozen, {}}, {{}, frozen}};
    const Program program = Lowered(schedule, options);
    const double parts[] = {1 + 0, 1 + 0.5, 1 + 1};
    for (int rank = 0; rank < 3; ++rank) {
      INFO(rank << " blocks " << static_cast<int>(blocks));
      CHECK(BytesOf(program, rank)[OpKind::kAllGather] ==
            Approx(parts[rank] * 8 * 32));
    }
    // Without anything trained there is no first one.
    options.layers.stages = {{frozen, frozen}, {frozen, frozen}, {frozen}};
    CHECK(BytesOf(Lowered(schedule, options), 0)[OpKind::kAllGather] ==
          Approx(2 * 8 * 32));
  }
}

// Breadth first: one gather a chunk and direction, one scatter a chunk.
TEST_CASE("shards: a unit is gathered for once", "[program]") {
  const auto schedule = Registered("looped-bfs", 2, 6, 3);
  REQUIRE(schedule->unit == 6);
  for (const ShardBlocks blocks : {ShardBlocks::kRun, ShardBlocks::kUnit}) {
    auto bytes = BytesOf(
        Lowered(schedule, Sharded(*schedule, DataParallel::kFsdp, blocks)), 0);
    CHECK(bytes[OpKind::kAllGather] == 2 * 3 * 32);
    CHECK(bytes[OpKind::kReduceScatter] == 3 * 64);
  }
}

// Alone on its links fsdp hides what a pass is long enough for.
TEST_CASE("shards: gathers are prefetched", "[program]") {
  const auto schedule = Registered("1f1b", 1, 8);
  LowerOptions options =
      Sharded(*schedule, DataParallel::kFsdp, ShardBlocks::kPass);
  auto cluster = BuildCluster(SmallFabric(1, 2, 0));
  REQUIRE(cluster.ok());
  options.network =
      NetworkOf(std::make_shared<Cluster>(*std::move(cluster)), {0, 1}, 1, 2);
  const Program program = Lowered(schedule, options);
  const std::vector<Member> members =
      GroupMembers(program, program.groups[0], 0);
  const double gather_s =
      PlanCollective(program, OpKind::kAllGather, 32, members).seconds;
  const double scatter_s =
      PlanCollective(program, OpKind::kReduceScatter, 64, members).seconds;
  REQUIRE(gather_s + scatter_s < 8);
  const absl::StatusOr<RunSummary> fast = RunFast(program, {});
  const absl::StatusOr<RunSummary> simgrid = RunSimgrid(program, {});
  REQUIRE(fast.ok());
  REQUIRE(simgrid.ok());
  // The first gather and the last scatter are all that shows.
  CHECK(fast->iteration_s() == Approx(gather_s + 8 * 24 + scatter_s));
  CHECK(simgrid->iteration_s() == Approx(fast->iteration_s()).epsilon(1e-9));
}

// Two reduce-scatters may be under way behind the block that ends: BW n waits
// for scatter n - 2. Scatters of 32 s behind passes of 8 s and 16 s are what
// the order waits for.
TEST_CASE("shards: a backward waits for the scatter two back", "[program]") {
  constexpr int kMicrobatches = 6;
  constexpr double kScatter_s = 32;
  const auto schedule = Registered("1f1b", 1, kMicrobatches);
  LowerOptions options =
      Sharded(*schedule, DataParallel::kZero2, ShardBlocks::kPass);
  options.network.hop_s = kScatter_s;  // what two members take for one step
  const Program program = Lowered(schedule, options);
  for (const auto run : {&RunFast, &RunSimgrid}) {
    FullTrace trace;
    REQUIRE(run(program, {.trace = &trace}).ok());
    std::vector<double> backward_s, scatter_s;
    for (const TraceOp& op : trace.ops()) {
      if (op.replica != 0) continue;
      if (op.kind == OpKind::kReduceScatter) scatter_s.push_back(op.start_s);
      if (op.kind == OpKind::kPass && IsBackward(op.pass.kind())) {
        backward_s.push_back(op.start_s);
      }
    }
    std::sort(backward_s.begin(), backward_s.end());
    std::sort(scatter_s.begin(), scatter_s.end());
    REQUIRE(backward_s.size() == kMicrobatches);
    REQUIRE(scatter_s.size() == kMicrobatches);
    // F0 8, BW0 16; then one scatter after the other without a gap.
    for (int number = 0; number < kMicrobatches; ++number) {
      INFO("microbatch " << number);
      CHECK(scatter_s[number] == Approx(24 + number * kScatter_s));
      if (number < 2) continue;
      CHECK(backward_s[number] == Approx(24 + (number - 1) * kScatter_s));
    }
  }
}

// One gather for each unit, chunk and direction, one scatter for each unit and
// chunk: 2vm/U and vm/U a rank, on orders that switch chunks more often.
TEST_CASE("shards: units of a ZeroPP-like order", "[program][oracle]") {
  const testing::Json data = testing::LoadOracle("reconstruction_zeropp_like");
  int cases = 0;
  for (const auto& run : data["runs"]) {
    const int pp = run["p"];
    const int vpp = run["v"];
    const int microbatches = run["m"];
    const int unit = run["U"];
    std::string text =
        absl::StrCat("pp ", pp, " vpp ", vpp, " microbatches ", microbatches,
                     " unit ", unit, " placement ", vpp > 1 ? "loop" : "plain");
    for (int rank = 0; rank < pp; ++rank) {
      absl::StrAppend(&text, "\n", rank, ":");
      for (const std::string token : run["ops"][rank]) {
        const size_t letter = token.find_first_of("FIW");
        REQUIRE(letter != std::string::npos);
        absl::StrAppend(&text, " ",
                        token[letter] == 'I' ? "B" : token.substr(letter, 1),
                        token.substr(letter + 1));
        if (vpp > 1) {
          absl::StrAppend(&text, ".", std::stoi(token.substr(0, letter)) / pp);
        }
      }
    }
    const auto schedule = Parsed(text);
    REQUIRE(schedule->unit == unit);
    const Program program = Lowered(
        schedule, Sharded(*schedule, DataParallel::kFsdp, ShardBlocks::kUnit));
    for (int rank = 0; rank < pp; ++rank) {
      INFO("p " << pp << " v " << vpp << " U " << unit << " rank " << rank);
      auto bytes = BytesOf(program, rank);
      CHECK(bytes[OpKind::kAllGather] == 2.0 * vpp * microbatches / unit * 32);
      CHECK(bytes[OpKind::kReduceScatter] ==
            1.0 * vpp * microbatches / unit * 64);
    }
    ++cases;
  }
  CHECK(cases == 6);
}

}  // namespace
}  // namespace pipewright::lower_shards_test
