// Launches and exchanges of layers, by hand arithmetic.
#include <catch2/catch.hpp>
#include <cmath>

#include "sim/cost/block_time.h"
#include "sim/cost/exchange_time.h"
#include "sim/cost/host_time.h"

namespace pipewright {
namespace {

ModelSpec SmallMixture() {
  ModelSpec model = *FindModel("moe-tiny");
  model.window = 32;
  model.full_attention_every = 2;
  return model;
}

TrainingSpec Training() {
  TrainingSpec training;
  training.sequence = 128;
  return training;
}

const ModelOp& Named(const std::vector<ModelOp>& ops, const char* name) {
  for (const ModelOp& op : ops) {
    if (op.name == name) return op;
  }
  FAIL(name);
  return ops.front();
}

constexpr auto kForward = OpPass::kForward;
constexpr auto kInput = OpPass::kBackwardInput;
constexpr auto kWeight = OpPass::kBackwardWeight;

}  // namespace

TEST_CASE("execution: launches are counted by who makes them", "[cost]") {
  TrainingSpec training = Training();
  const auto ops = [&] {
    return BlockOps(SmallMixture(), training, BlockKind::kExpertLayer, 1);
  };
  // One kernel, and 1.7 of them for the module.
  CHECK(HostLaunches(training, Named(ops(), "qkv"), kForward) == Approx(2.7));
  CHECK(HostLaunches(training, Named(ops(), "qkv"), kWeight) == Approx(1));
  // A module, and 0.67 for each of eight experts.
  CHECK(HostLaunches(training, Named(ops(), "experts down"), kForward) ==
        Approx(1.7 + 8 * 0.67));
  training.precision = Precision::kFp8;
  CHECK(HostLaunches(training, Named(ops(), "qkv"), kInput) ==
        Approx(1 + 1 + 2 * 1.7));
  CHECK(HostLaunches(training, Named(ops(), "experts down"), kInput) ==
        Approx(2 * 1.7 + 8 * 2 * 0.67));
  training.precision = Precision::kBf16;
  training.execution.launch = Launch::kCompiled;
  CHECK(HostLaunches(training, Named(ops(), "qkv"), kForward) == Approx(1));
  training.execution.launch = Launch::kGraphs;
  CHECK(HostLaunches(training, Named(ops(), "qkv"), kForward) == 0);
  // Not in a graph unless it is told so.
  CHECK(HostLaunches(training, Named(ops(), "experts down"), kForward) > 0);
  training.execution.graph_parts = 15;
  CHECK(HostLaunches(training, Named(ops(), "experts down"), kForward) == 0);
  CHECK(GraphLaunches(training, ops(), kForward) == 1);
}

TEST_CASE("execution: a pass takes the larger of device and host", "[cost]") {
  AnalyticOptions options;
  options.device = *FindDevice("h100");
  const ModelSpec model = *FindModel("gpt-tiny");
  const auto sum = [&] {
    return SumBlock(model, Training(), options, BlockKind::kDenseLayer, 0,
                    Recompute::kNone);
  };
  const BlockSeconds device = sum();
  options.launch_s = 1e-9;
  CHECK(sum().passes[0] == device.passes[0]);
  options.launch_s = 1;
  double launches[kNumOpPasses] = {0, 0, 0};
  for (const ModelOp& op :
       BlockOps(model, Training(), BlockKind::kDenseLayer, 0)) {
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      launches[pass] += HostLaunches(Training(), op, static_cast<OpPass>(pass));
    }
  }
  for (int pass = 0; pass < kNumOpPasses; ++pass) {
    CHECK(sum().passes[pass] == Approx(launches[pass]));
  }
  CHECK(sum().full == Approx(launches[1] + launches[2]));
}

TEST_CASE("execution: tokens sent once for each device and node", "[cost]") {
  // 8 copies of a token of one byte, over 32 devices of 4 nodes.
  OpComm comm = {.kind = CommKind::kAllToAll, .members = 32, .bytes = 8};
  const ExchangeBytes all = BytesOfExchange(comm, 32, 4);
  CHECK(all.nvlink == Approx(8 * 7.0 / 32));
  CHECK(all.nic == Approx(8 * 24.0 / 32));
  comm.copies = 8;
  const ExchangeBytes once = BytesOfExchange(comm, 32, 4);
  const double devices = 32 * (1 - std::pow(31.0 / 32, 8));
  const double nodes = 4 * (1 - std::pow(3.0 / 4, 8));
  CHECK(once.buffer == Approx(devices));
  CHECK(once.nvlink == Approx(devices * 7 / 8));
  CHECK(once.nic == Approx(nodes * 3 / 4));
  comm.most_nodes = 2;
  CHECK(BytesOfExchange(comm, 32, 4).nic == Approx(2 * 3.0 / 4));
  CHECK(BytesOfExchange(comm, 32, 1).nic == 0);
}

TEST_CASE("execution: windows leave out what lies before them", "[cost]") {
  const ModelSpec model = SmallMixture();
  const auto flops = [&](int64_t layer) {
    return Named(BlockOps(model, Training(), BlockKind::kExpertLayer, layer),
                 "attention")
        .Work(kForward)
        .flops;
  };
  // Layers 1, 3, ... see all: half of the scores. The others see a quarter of
  // them but for the first 32 tokens: 1/4 * (1 - 1/8).
  CHECK(flops(2) / flops(1) == Approx(0.25 * 0.875 / 0.5));
  CHECK(flops(3) == flops(1));
  ModelSpec none = model;
  none.window = 0;
  CHECK_FALSE(none.layers_differ());
  CHECK(model.layers_differ());
}

TEST_CASE("execution: experts over tensor parallelism", "[cost]") {
  const ModelSpec model = *FindModel("moe-tiny");
  TrainingSpec training = Training();
  training.tp = 2;
  training.sequence_parallel = true;
  training.dp = 2;
  training.ep = 4;
  CHECK_FALSE(CheckTraining(model, training, 1).ok());
  training.execution.etp = 1;
  REQUIRE(CheckTraining(model, training, 1).ok());
  const auto rows = [&] {
    const ModelOp op = Named(
        BlockOps(model, training, BlockKind::kExpertLayer, 1), "experts down");
    return op.m * op.count;
  };
  // 128 tokens of two experts each, on two devices.
  CHECK(rows() == Approx(128 * 2 / 2));
  CHECK(training.expert_shards() == 1);
  training.execution.expert_load = 1.5;
  CHECK(rows() == Approx(1.5 * 128 * 2 / 2));
  training.execution.etp = 2;
  training.ep = 2;
  CHECK(rows() == Approx(1.5 * 128 * 2));
  training.sequence_parallel = false;
  training.execution.etp = 1;
  CHECK_FALSE(CheckTraining(model, training, 1).ok());
}

TEST_CASE("execution: exchanges beside other passes and products", "[cost]") {
  AnalyticOptions options;
  options.device = *FindDevice("h100");
  options.network = {8, 450e9, 50e9};
  TrainingSpec training = Training();
  training.sequence = 4096;
  training.dp = training.ep = 8;
  const ModelSpec model = *FindModel("qwen3-30b-a3b");
  const auto forward_s = [&] {
    return SumBlock(model, training, options, BlockKind::kExpertLayer, 0,
                    Recompute::kNone)
        .passes[0];
  };
  const double before_s = forward_s();
  double exchange_s = 0;
  for (const OpTime& op :
       BlockTimes(model, training, options, BlockKind::kExpertLayer, 0)) {
    exchange_s += op.comm_seconds[0];
  }
  REQUIRE(exchange_s > 0);
  training.execution.overlap_experts = true;
  // 16 of 132 multiprocessors are missed while it runs.
  CHECK(forward_s() == Approx(before_s - exchange_s + exchange_s * 16.0 / 132));

  training = Training();
  training.sequence = 4096;
  training.tp = 8;
  training.sequence_parallel = true;
  const auto exposed_s = [&] {
    const std::vector<OpTime> times = BlockTimes(
        *FindModel("llama3-70b"), training, options, BlockKind::kDenseLayer, 0);
    for (const OpTime& time : times) {
      if (time.name == "qkv") return time;
    }
    return OpTime();
  };
  const OpTime plain = exposed_s();
  training.execution.overlap_tensor = true;
  const double comm_s = plain.comm_seconds[0];
  REQUIRE(comm_s > 0);
  CHECK(exposed_s().comm_seconds[0] ==
        Approx(comm_s / 8 + std::max(0.0, comm_s * 7 / 8 - plain.seconds[0])));
}

TEST_CASE("execution: keys and values meet queries in three ways", "[cost]") {
  TrainingSpec training = Training();
  training.cp = 4;
  const ModelSpec model = *FindModel("llama3-8b");
  const auto comms = [&](ContextExchange how) {
    training.execution.context = how;
    return Named(BlockOps(model, training, BlockKind::kDenseLayer, 0),
                 "attention")
        .comms;
  };
  // 32 tokens, 8 key and 8 value heads of 128 in bf16.
  const double own = 2.0 * 32 * 16 * 128;
  const auto ring = comms(ContextExchange::kRing);
  REQUIRE(ring.size() == 2);
  CHECK(ring[0].bytes == own);
  CHECK(ring[0].overlaps);
  const auto gathered = comms(ContextExchange::kAllGather);
  REQUIRE(gathered.size() == 3);
  CHECK(gathered[0].bytes == 4 * own);
  CHECK(gathered[2].kind == CommKind::kReduceScatter);
  const auto heads = comms(ContextExchange::kAllToAll);
  REQUIRE(heads.size() == 4);
  CHECK(heads[0].bytes == own + 2.0 * 32 * 32 * 128);
  CHECK(heads[1].bytes == 2.0 * 32 * 32 * 128);
  training.cp = 64;
  training.sequence = 64;
  CHECK_FALSE(CheckTraining(model, training, 1).ok());
}

}  // namespace pipewright
