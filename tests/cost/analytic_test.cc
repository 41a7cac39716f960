// Terms of the analytic model by hand: what is updated, what runs again, what
// a ring of neighbours sends. Whole steps are in tests/papers.
#include "sim/cost/analytic.h"

#include <catch2/catch.hpp>

namespace pipewright::analytic_test {
namespace {

AnalyticOptions OnH100() {
  AnalyticOptions options = {.device = *FindDevice("h100")};
  options.network = {.devices_per_node = 8,
                     .nvlink_bytes_per_s = 450e9,
                     .nic_bytes_per_s = 50e9};
  return options;
}

// Adam moves 28 bytes a parameter, norm and clipping 12 of its gradient, a cast
// 6. Megatron's buffer is zeroed and looked through, and scaled where there are
// replicas.
TEST_CASE("cost: an optimizer updates its own shards of experts and the rest",
          "[cost]") {
  AnalyticOptions options = OnH100();
  const DeviceSpec& device = options.device;
  const double stream = device.hbm_bytes_per_s * device.hbm_sustained;
  TrainingSpec training;
  training.dp = 8;
  training.ep = 4;
  training.zero = 1;
  training.gradient_bytes = 4;
  // Two devices hold the same experts, eight the same of all else.
  constexpr double kShard = 8e9 / 8 + 6e9 / 2;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx((46 * kShard + 16 * 14e9) / stream));
  training.gradient_bytes = 2;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx((46 * kShard + 8 * 14e9) / stream));
  training.gradient_bytes = 4;
  training.zero = 2;  // no device has all gradients
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx(62 * kShard / stream));
  training.zero = 0;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx(62 * 14e9 / stream));
  // One replica is averaged with nobody.
  training.dp = training.ep = 1;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx(54 * 14e9 / stream));
  // PyTorch has no such buffer, and casts where it gathers.
  options.kernels = FrameworkKernels::kEager;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx(40 * 14e9 / stream));
  // Adam's 28 of these bytes kernel by kernel.
  training.fused_optimizer = false;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx((40 + 1.8 * 28) * 14e9 / stream));
  training.fused_optimizer = true;
  // Both moments in 16 bit, each read and written.
  training.moment_bytes = 4;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx((40 - 2 * 4) * 14e9 / stream));
  // Without a master weight the weight is updated, and nothing is cast.
  training.master_bytes = 0;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx((40 - 2 * 4 - 2 * 2) * 14e9 / stream));
  options.kernels = FrameworkKernels::kFused;
  CHECK(OptimizerSeconds(options, training, 8e9, 6e9) ==
        Approx((40 - 2 * 4 - 2 * 2 + 2 * 4) * 14e9 / stream));
}

TEST_CASE("cost: what is gathered in bf16 is cast to no more", "[cost]") {
  const AnalyticOptions options = OnH100();
  const double stream =
      options.device.hbm_bytes_per_s * options.device.hbm_sustained;
  TrainingSpec training;
  training.weight_bytes = training.master_bytes = 4;
  const double own_s = OptimizerSeconds(options, training, 8e9, 0);
  training.sharded.shard_group = 1;
  CHECK(own_s - OptimizerSeconds(options, training, 8e9, 0) ==
        Approx(2 * 8e9 / stream));
}

TEST_CASE("cost: a full recomputation is the forward once more", "[cost]") {
  ModelSpec model;
  model.layers = 4;
  model.hidden = 1024;
  model.heads = model.kv_heads = 8;
  model.ffn_hidden = 4096;
  model.vocabulary = 1000;
  model.sequence = 512;
  TrainingSpec training;
  training.sequence = model.sequence;
  StageLayout layout;
  for (int stage = 0; stage < 2; ++stage) {
    layout.stages.push_back({{.kind = BlockKind::kDenseLayer,
                              .first_layer = 2 * stage,
                              .count = 2}});
  }
  const auto stage = [&](Recompute recompute) {
    training.recompute = recompute;
    return AnalyticCosts(model, training, OnH100(), layout, {0, 1}).stages[1];
  };
  const StageCosts plain = stage(Recompute::kNone);
  const StageCosts again = stage(Recompute::kFull);
  CHECK(plain.recompute_s == 0);
  CHECK(again.forward_s == plain.forward_s);
  CHECK(again.recompute_s == Approx(plain.forward_s));
  CHECK(again.backward_input_s ==
        Approx(plain.backward_input_s + plain.forward_s));
  CHECK(again.backward_weight_s == plain.backward_weight_s);
  // Frozen layers run nothing again; they are of the first layers all the same.
  training.recompute_layers = 1;
  CHECK(stage(Recompute::kFull).recompute_s == Approx(plain.forward_s / 2));
  model.frozen_layers = 3;
  CHECK(stage(Recompute::kFull).recompute_s == 0);
  training.recompute_layers = 2;
  CHECK(stage(Recompute::kFull).recompute_s == Approx(plain.forward_s / 2));
}

// Recomputing single operations gathers inputs again; sums are kept.
TEST_CASE("cost: recomputed operations gather their inputs", "[cost]") {
  const ModelSpec model = *FindModel("llama3-8b");
  TrainingSpec training;
  training.sequence = model.sequence;
  training.tp = 8;
  training.sequence_parallel = true;
  training.recompute = Recompute::kOpSelective;
  StageLayout layout;
  layout.stages.push_back({{.kind = BlockKind::kDenseLayer, .count = 1}});
  const auto ops = BlockOps(model, training, BlockKind::kDenseLayer, 0);
  const auto times =
      BlockTimes(model, training, OnH100(), BlockKind::kDenseLayer, 0);
  double again_s = 0;
  double gathered_s = 0;
  for (size_t index = 0; index < ops.size(); ++index) {
    again_s += RecomputedPart(ops[index], Recompute::kOpSelective) *
               times[index].seconds[0];
    if (ops[index].name == "qkv" || ops[index].name == "gate-up") {
      gathered_s += times[index].comm_seconds[0];
    }
  }
  const PassCosts costs = AnalyticCosts(model, training, OnH100(), layout, {0});
  CHECK(gathered_s > 0);
  CHECK(costs.stages[0].recompute_s == Approx(again_s + gathered_s));
  REQUIRE(costs.exchanges[0].recompute.size() == 1);
  CHECK(costs.exchanges[0].recompute[0].seconds == Approx(gathered_s));
}

// Each of n members sends to its neighbour n - 1 times.
TEST_CASE("cost: a ring of neighbours takes a step less than it has members",
          "[cost]") {
  const AnalyticOptions options = OnH100();
  const TrainingSpec training;
  const double bus =
      450e9 * options.device.collective_sustained;  // inside a node
  for (const int members : {2, 4, 8}) {
    const auto seconds = [&](double bytes) {
      return CommSeconds(options, training,
                         {.kind = CommKind::kRing,
                          .group = CommGroup::kContext,
                          .members = members,
                          .bytes = bytes});
    };
    INFO(members << " members");
    // Latencies are the same whatever is sent.
    CHECK(seconds(3e9) - seconds(1e9) == Approx((members - 1) * 2e9 / bus));
  }
}

}  // namespace
}  // namespace pipewright::analytic_test
