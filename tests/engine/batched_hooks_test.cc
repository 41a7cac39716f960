// Batches of transfers beside the gathers and scatters of sharded data
// parallelism: what comes with every pass does not split them.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/engine/fast_engine.h"
#include "sim/engine/simgrid_engine.h"
#include "tests/support/lowering.h"
#include "tests/support/reference_engine.h"

namespace pipewright::batched_hooks_test {
namespace {

struct Sharding {
  DataParallel mode;
  ShardBlocks blocks;
};

constexpr Sharding kShardings[] = {
    {DataParallel::kZero2, ShardBlocks::kPass},
    {DataParallel::kFsdp, ShardBlocks::kPass},
    {DataParallel::kFsdp, ShardBlocks::kLayer},
    {DataParallel::kOdc, ShardBlocks::kLayer},
};

LowerOptions Batched(const Schedule& schedule) {
  LowerOptions options;
  options.costs = CostsOf(
      schedule, {.forward = 4, .backward_input = 8, .backward_weight = 4});
  options.wait_rule = WaitRule::kBatched;
  options.optimizer = OptimizerMode::kNone;
  options.iterations = 1;
  return options;
}

// The engines' and the naive reference's end of the first iteration.
double EndOfFirst(const Program& program) {
  REQUIRE(VerifyProgram(program) == absl::OkStatus());
  const absl::StatusOr<RunSummary> fast = RunFast(program, {});
  const absl::StatusOr<RunSummary> events = RunSimgrid(program, {});
  const absl::StatusOr<RunSummary> naive = RunReference(program);
  INFO(fast.status());
  REQUIRE(fast.ok());
  REQUIRE(events.ok());
  REQUIRE(naive.ok());
  CHECK(fast->iteration_end_s == naive->iteration_end_s);
  CHECK(events->iteration_end_s == naive->iteration_end_s);
  return fast->iteration_end_s[0];
}

// Nothing but passes takes time here, so the run is as long as one
// replica's alone; a split batch of 1F1B would never end.
TEST_CASE("batched: gathers and scatters do not split a batch", "[engine]") {
  for (const char* name : {"1f1b", "zb-h1"}) {
    const auto schedule = Registered(name, 4, 8);
    const double alone_s = EndOfFirst(Lowered(schedule, Batched(*schedule)));
    for (const Sharding& sharding : kShardings) {
      LowerOptions options = Batched(*schedule);
      options.data_parallel = sharding.mode;
      options.shard_blocks = sharding.blocks;
      options.replicas = 2;
      options.gradient_bytes.assign(schedule->stages(), 64);
      options.parameter_bytes.assign(schedule->stages(), 32);
      if (sharding.blocks == ShardBlocks::kLayer) {
        options.layers.stages.assign(schedule->stages(),
                                     std::vector<LayerShare>(2));
        options.layers.poll_s = 0;
      }
      INFO(name << " mode " << static_cast<int>(sharding.mode) << " blocks "
                << static_cast<int>(sharding.blocks));
      CHECK(EndOfFirst(Lowered(schedule, options)) == Approx(alone_s));
    }
  }
}

}  // namespace
}  // namespace pipewright::batched_hooks_test
