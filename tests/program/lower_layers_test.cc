// Layers as the unit of sharding: which operations come with which layer.
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/cursor.h"
#include "sim/trace/trace.h"
#include "tests/support/lowering.h"
#include "tests/support/reference_engine.h"

namespace pipewright::lower_layers_test {
namespace {

LowerOptions Layered(const Schedule& schedule, DataParallel mode, int layers) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 8, .backward_input = 8, .backward_weight = 8});
  options.data_parallel = mode;
  options.shard_blocks = ShardBlocks::kLayer;
  options.layers.stages.assign(schedule.stages(),
                               std::vector<LayerShare>(layers));
  options.replicas = 4;
  options.gradient_bytes.assign(schedule.stages(), 64);
  options.parameter_bytes.assign(schedule.stages(), 32);
  options.iterations = 1;
  return options;
}

TEST_CASE("layers: fsdp as text", "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 2\n0: F0 BW0 F1 BW1");
  LowerOptions options = Layered(*schedule, DataParallel::kFsdp, 3);
  CHECK_THAT(
      ToString(Lowered(schedule, options)),
      Catch::Contains(
          "0: all-gather.0@g1 all-gather.0@g1 F0/0 all-gather.0@g1 F0/1 F0/2 "
          "all-gather.0@g1 all-gather.0@g1 BW0/2 reduce-scatter.0@g1 "
          "all-gather.0@g1 BW0/1 reduce-scatter.0@g1 BW0/0 "
          "reduce-scatter.0@g1 wait.0 all-gather.0@g1 all-gather.0@g1 F1/0"));
  options.layers.reshard_after_forward = false;
  CHECK_THAT(
      ToString(Lowered(schedule, options)),
      Catch::Contains(
          "0: all-gather.0@g1 all-gather.0@g1 F0/0 all-gather.0@g1 F0/1 F0/2 "
          "BW0/2 reduce-scatter.0@g1 BW0/1 reduce-scatter.0@g1 BW0/0 "
          "reduce-scatter.0@g1 wait.0 all-gather.0@g1 all-gather.0@g1 F1/0"));
}

TEST_CASE("layers: no gather for the backward of frozen layers in front",
          "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 2\n0: F0 BW0 F1 BW1");
  LowerOptions options = Layered(*schedule, DataParallel::kFsdp, 3);
  options.layers.stages[0][0].parameters = 0;
  for (const bool reshards : {true, false}) {
    options.layers.reshard_after_forward = reshards;
    CHECK_THAT(ToString(Lowered(schedule, options)),
               Catch::Contains(absl::StrCat(
                   "0: all-gather.0@g1 all-gather.0@g1 F0/0 all-gather.0@g1 "
                   "F0/1 F0/2 ",
                   reshards ? "all-gather.0@g1 all-gather.0@g1 " : "",
                   "BW0/2 reduce-scatter.0@g1 BW0/1 reduce-scatter.0@g1 BW0/0 "
                   "reduce-scatter.0@g1 wait.0 all-gather.0@g1 all-gather.0@g1 "
                   "F1/0")));
  }
}

// FSDP2 under a pipeline: until gradients are reduced, layers stay gathered.
TEST_CASE("layers: with one reduction a step there is one gather",
          "[program]") {
  for (const int iterations : {1, 3}) {
    const auto schedule = Registered("1f1b", 2, 4);
    LowerOptions options = Layered(*schedule, DataParallel::kFsdp, 3);
    options.iterations = iterations;
    options.layers.reshard_after_forward = false;
    const auto gathers = [&] {
      const Program program = Lowered(schedule, options);
      const auto naive = RunReference(program);
      FullTrace trace;
      const auto fast = RunFast(program, {.trace = &trace});
      REQUIRE((fast.ok() && naive.ok()));
      CHECK(fast->iteration_end_s == naive->iteration_end_s);
      int count = 0;
      for (const TraceOp& op : trace.ops()) {
        if (op.kind == OpKind::kAllGather && op.iteration >= 0) ++count;
      }
      return count;
    };
    // Two ranks of three layers; every microbatch gathers them anew.
    CHECK(gathers() == iterations * 2 * 3 * 4);
    options.layers.reduces_once = true;
    CHECK(gathers() == iterations * 2 * 3);
    // If forwards give layers up, every microbatch gathers, and backwards too.
    options.layers.reshard_after_forward = true;
    CHECK(gathers() == iterations * 2 * 3 * 4 * 2);
  }
}

TEST_CASE("layers: odc pulls, pushes and meets twice", "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0");
  const LowerOptions options = Layered(*schedule, DataParallel::kOdc, 2);
  CHECK_THAT(ToString(Lowered(schedule, options)),
             Catch::Contains(
                 "0: pull.0@r0 pull.0@r0 F0/0 F0/1 pull.0@r0 pull.0@r0 BW0/1 "
                 "push.0@r0 BW0/0 push.0@r0 wait.0 barrier@g0 barrier@g1\n"));
}

TEST_CASE("layers: a pass and its channels stay what they are", "[program]") {
  const auto schedule = Registered("1f1b", 2, 4);
  LowerOptions options = Layered(*schedule, DataParallel::kFsdp, 4);
  options.parameter_bytes = {0, 0};
  options.gradient_bytes = {0, 0};
  const Program layered = Lowered(schedule, options);
  options.data_parallel = DataParallel::kNone;
  const Program whole = Lowered(schedule, options);
  CHECK(layered.num_passes() == whole.num_passes());
  CHECK(layered.channels.size() > whole.channels.size());
  const auto one = RunFast(layered, {});
  const auto other = RunFast(whole, {});
  REQUIRE((one.ok() && other.ok()));
  CHECK(one->iteration_end_s.back() == Approx(other->iteration_end_s.back()));
  CHECK(one->bytes_sent == other->bytes_sent);
  FullTrace trace;
  REQUIRE(RunFast(layered, {.trace = &trace}).ok());
  int passes = 0;
  for (const TraceOp& op : trace.ops()) {
    if (op.kind == OpKind::kPass) ++passes;
  }
  CHECK(passes == whole.num_passes());
}

// The bytes that one device takes in with its gathers, by what it takes them
// from: [far or not].
TEST_CASE("layers: hpz and hsdp keep gathers inside their part", "[program]") {
  const auto schedule = Parsed("pp 1 vpp 1 microbatches 2\n0: F0 BW0 F1 BW1");
  for (const DataParallel mode : {DataParallel::kFsdp, DataParallel::kOdc}) {
    LowerOptions options = Layered(*schedule, mode, 2);
    options.layers.near_group = 2;
    const Program near = Lowered(schedule, options);
    options.layers.near_group = 0;
    options.layers.shard_group = 2;
    const Program parts = Lowered(schedule, options);
    for (const Program* program : {&near, &parts}) {
      const auto fast = RunFast(*program, {});
      const auto naive = RunReference(*program);
      REQUIRE((fast.ok() && naive.ok()));
      CHECK(fast->iteration_end_s == naive->iteration_end_s);
      for (const SideOp& op : program->ranks[0].side_ops) {
        if (op.kind != OpKind::kPull) continue;
        REQUIRE(op.peers->steps.size() == 1);
        for (int replica = 0; replica < 4; ++replica) {
          CHECK(op.peers->ReplicaOf(op.peers->steps[0].peers[0], replica, 4) /
                    2 ==
                replica / 2);
        }
      }
    }
    // All parts of HSDP sum what they have.
    bool across = false;
    for (const Group& group : parts.groups) across |= group.across;
    CHECK(across);
  }
}

TEST_CASE("layers: what does not fit is refused", "[program]") {
  const auto schedule = Registered("1f1b", 2, 4);
  LowerOptions options = Layered(*schedule, DataParallel::kFsdp, 2);
  options.layers.shard_group = 3;
  CHECK_THAT(Lower(schedule, options).status().ToString(),
             Catch::Contains("strategy.shard_group"));
  options.layers.shard_group = 0;
  options.layers.stages.pop_back();
  CHECK_THAT(Lower(schedule, options).status().ToString(),
             Catch::Contains("model.layers: on 1 stages"));
  options.layers.stages.push_back({{}, {}});
  options.data_parallel = DataParallel::kZero2;
  CHECK_THAT(Lower(schedule, options).status().ToString(),
             Catch::Contains("strategy.shard_blocks"));
}

TEST_CASE("layers: a Program whose hooks do not pair up is found",
          "[program]") {
  const auto schedule = Registered("1f1b", 1, 4);
  const Program good =
      Lowered(schedule, Layered(*schedule, DataParallel::kFsdp, 2));
  REQUIRE(VerifyProgram(good).ok());
  // The end of a backward waits for a layer that ends twice as often.
  Program bad = good;
  LaneHook& end = bad.ranks[0].hooks.back();
  for (int32_t& op : end.side_ops) op = -1;
  CHECK_FALSE(VerifyProgram(bad).ok());
  bad = good;
  bad.ranks[0].hooks[0].in_time.pop_back();
  CHECK_FALSE(VerifyProgram(bad).ok());
  bad = good;
  bad.groups[0].part = 3;
  CHECK_FALSE(VerifyProgram(bad).ok());
}

}  // namespace
}  // namespace pipewright::lower_layers_test
