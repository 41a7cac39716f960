// FSDP2 under a pipeline: gradients are reduced with the last microbatch alone.
#include <catch2/catch.hpp>

#include "absl/strings/match.h"
#include "sim/config/prepare.h"
#include "sim/run/simulated_run.h"

namespace pipewright::whole_gradients_test {
namespace {

RunConfig Layers(bool whole) {
  RunConfig config;
  config.model.preset = "gpt-tiny";
  config.system.preset = "dgx-h100";
  config.system.nvlink.bytes_per_s = 2e9;
  config.schedule.name = "1f1b";
  config.strategy.pp = 2;
  config.strategy.dp = 4;
  config.strategy.microbatches = 8;
  config.strategy.data_parallel = DataParallel::kFsdp;
  config.strategy.shard_blocks = ShardBlocks::kLayer;
  config.strategy.reshard_after_forward = false;
  config.strategy.whole_gradients = whole;
  config.costs.analytic = true;
  config.costs.analytic_launch_s = 0;  // a model this small waits for the host
  config.engine = "fast";
  return config;
}

TEST_CASE("whole gradients: one reduction a step, and more memory",
          "[program]") {
  RunContext context;
  const auto each = Simulate(Layers(false), &context, {});
  const auto once = Simulate(Layers(true), &context, {});
  REQUIRE(each.ok());
  REQUIRE(once.ok());
  // Links of 2 GB/s: eight reductions take most of the step.
  CHECK(once->report.iteration_s < 0.6 * each->report.iteration_s);
  const auto peak = [](const SimulatedRun& run) {
    return run.report.memory->memory->ranks[0].peak();
  };
  CHECK(peak(*once) > peak(*each));
}

TEST_CASE("whole gradients: not with parts of dp, nor with odc", "[program]") {
  RunConfig config = Layers(true);
  config.strategy.shard_group = 2;
  RunContext context;
  auto run = Simulate(config, &context, {});
  CHECK(absl::StrContains(run.status().message(), "strategy.whole_gradients"));
  config.strategy.shard_group.reset();
  config.strategy.reshard_after_forward.reset();
  config.strategy.shard_blocks.reset();
  config.strategy.data_parallel = DataParallel::kOdc;
  run = Simulate(config, &context, {});
  CHECK(absl::StrContains(run.status().message(), "strategy.whole_gradients"));
}

}  // namespace
}  // namespace pipewright::whole_gradients_test
