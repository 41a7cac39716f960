// Memory where layers are the unit of sharding: peaks by hand arithmetic, the
// table of buffers counted a second time, and how many layers a run really has
// gathered at a time.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/config/prepare.h"
#include "sim/engine/fast_engine.h"
#include "sim/memory/schedule_memory.h"
#include "tests/support/lowering.h"

namespace pipewright::sharded_layers_test {
namespace {

constexpr int64_t kWidth = 64;
constexpr int64_t kFeed = 256;
// Four matrices of attention, two of the feed-forward part, two norms.
constexpr int64_t kParameters =
    4 * kWidth * kWidth + 2 * kWidth * kFeed + 2 * kWidth;

ModelSpec SmallModel(int64_t layers) {
  ModelSpec model;
  model.layers = layers;
  model.hidden = kWidth;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = kFeed;
  model.vocabulary = 128;
  model.sequence = 16;
  return model;
}

TrainingSpec LayerByLayer(int dp) {
  TrainingSpec training;
  training.sequence = 16;
  training.flash_attention = false;
  training.dp = dp;
  training.zero = 3;
  training.sharded.shard_group = dp;
  training.sharded.gather_bytes = 2;
  training.sharded.is_fsdp2 = true;
  return training;
}

constexpr int64_t kLayers = 3;

RankMemory MemoryOf(const TrainingSpec& training, int64_t layers = kLayers) {
  StageLayout layout;
  layout.stages.push_back({{.kind = BlockKind::kDenseLayer, .count = layers}});
  return BuildScheduleMemory(
             SmallModel(layers), training, layout,
             *Parsed("pp 1 vpp 1 microbatches 2\n0: F0 BW0 F1 BW1"), {})
      .ranks[0];
}

TEST_CASE("sharded layers: 16 bytes a parameter over the replicas",
          "[memory]") {
  constexpr int kReplicas = 4;
  const MemoryBytes fixed = MemoryOf(LayerByLayer(kReplicas)).fixed;
  constexpr int64_t kShard = kLayers * kParameters / kReplicas;
  CHECK(fixed[MemoryKind::kWeights] == 0);
  CHECK(fixed[MemoryKind::kMaster] == 4 * kShard);
  CHECK(fixed[MemoryKind::kGradients] == 4 * kShard);
  CHECK(fixed[MemoryKind::kMoments] == 8 * kShard);
  // Two layers in bf16 and one as it came; the gradient of one, in bf16 and in
  // the type that is reduced.
  CHECK(fixed[MemoryKind::kBuffers] == (3 * 2 + 2 + 4) * kParameters);
  // Over one replica nothing is sharded: the weights stay.
  CHECK(MemoryOf(LayerByLayer(1)).fixed[MemoryKind::kWeights] ==
        2 * kLayers * kParameters);
  // Sharded block by block, as Megatron does: the weights are a shard of
  // their own.
  TrainingSpec blocks = LayerByLayer(kReplicas);
  blocks.sharded = {};
  CHECK(MemoryOf(blocks).fixed[MemoryKind::kWeights] == 2 * kShard);
  // Parameters in fp32 without masters, as torchtitan has them: the weights
  // are what is sharded, and whole layers are of the type that is gathered.
  TrainingSpec fp32 = LayerByLayer(kReplicas);
  fp32.weight_bytes = 4;
  fp32.master_bytes = 0;
  const MemoryBytes own = MemoryOf(fp32).fixed;
  CHECK(own[MemoryKind::kWeights] == 4 * kShard);
  CHECK(own[MemoryKind::kMaster] == 0);
  CHECK(own[MemoryKind::kBuffers] == (3 * 2 + 2 + 4) * kParameters);
  fp32.sharded.gather_bytes = 4;
  CHECK(MemoryOf(fp32).fixed[MemoryKind::kBuffers] ==
        (3 * 4 + 4 + 4) * kParameters);
}

TEST_CASE("sharded layers: the peak by hand", "[memory]") {
  constexpr int kReplicas = 4;
  const TrainingSpec fsdp = LayerByLayer(kReplicas);
  TrainingSpec odc = fsdp;
  odc.sharded.one_sided = true;
  odc.sharded.is_fsdp2 = false;
  odc.sharded.gather_bytes = 4;
  // What is not the sharding's: activations and scratch of the same passes on
  // one replica.
  TrainingSpec one = LayerByLayer(1);
  const RankMemory alone = MemoryOf(one);
  // Megatron's placeholders of gradients are of unsharded weights alone.
  const int64_t passes = alone.peak() - alone.fixed[MemoryKind::kPlaceholders] -
                         (2 + 4 + 4 + 8) * kLayers * kParameters;
  REQUIRE(passes > 0);
  // A forward keeps sbh(34 + 5as/h) of every layer (arXiv 2205.05198) without
  // dropout's masks, of this model's kinds of layers less.
  CHECK(passes > kLayers * 16 * kWidth * 30);
  // So from ZeRO 2 on there are none.
  for (const int zero : {0, 1, 2}) {
    TrainingSpec blocks = LayerByLayer(kReplicas);
    blocks.sharded = {};
    blocks.zero = zero;
    INFO("ZeRO " << zero);
    CHECK((MemoryOf(blocks).fixed[MemoryKind::kPlaceholders] > 0) ==
          (zero < 2));
  }
  const int64_t shard = 16 * kLayers * kParameters / kReplicas;
  const int64_t arrived = 2 * kParameters;
  const int64_t reduced = 4 * kParameters;
  int64_t gathered = 2 * 2 * kParameters;
  int64_t gradient = 2 * kParameters;
  // A layer in fp32 as it comes, and what clients push in fp32.
  CHECK(MemoryOf(odc).peak() == passes + shard + gathered + gradient +
                                    4 * kParameters + 4 * kParameters);
  odc.sharded.gather_bytes = 2;
  CHECK(MemoryOf(odc).peak() ==
        passes + shard + gathered + gradient + 4 * kParameters);
  // FSDP2 has a layer as it came, and a gradient as it is reduced, besides.
  gathered += arrived;
  gradient += reduced;
  CHECK(MemoryOf(fsdp).peak() == passes + shard + gathered + gradient);
  // HSDP over 2: shards twice as large, buffers alike.
  TrainingSpec hsdp = fsdp;
  hsdp.sharded.shard_group = 2;
  CHECK(MemoryOf(hsdp).peak() == passes + 2 * shard + gathered + gradient);
  // A copy among 2: half of all layers in bf16.
  TrainingSpec near = fsdp;
  near.sharded.near_group = 2;
  CHECK(MemoryOf(near).peak() ==
        passes + shard + gathered + gradient + 2 * kLayers * kParameters / 2);
  TrainingSpec kept = fsdp;
  kept.sharded.kept = true;
  CHECK(MemoryOf(kept).peak() ==
        passes + shard + kLayers * 2 * kParameters + arrived + gradient);
}

TEST_CASE("sharded layers: a head stays gathered from F to B", "[memory]") {
  const TrainingSpec training = LayerByLayer(4);
  const auto buffers = [&](std::vector<StageBlock> blocks) {
    StageLayout layout;
    layout.stages.push_back(std::move(blocks));
    return BuildScheduleMemory(SmallModel(kLayers), training, layout,
                               *Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0"),
                               {})
        .ranks[0]
        .fixed[MemoryKind::kBuffers];
  };
  const StageBlock layers = {.kind = BlockKind::kDenseLayer, .count = kLayers};
  constexpr int64_t kTable = 128 * kWidth;
  CHECK(buffers({{.kind = BlockKind::kEmbedding},
                 layers,
                 {.kind = BlockKind::kHead}}) ==
        buffers({layers}) + 2 * (kTable + kWidth));
}

// The table of docs/data_parallel.md once more, for layers of any size, in
// doubles.
double BuffersOf(const TrainingSpec& training, double layer, double layers) {
  const ShardedLayers& sharded = training.sharded;
  const double most = 64.0 * 1024 * 1024;
  const double whole = sharded.one_sided ? 2 : sharded.gather_bytes;
  // The gradient; of a reduction in fp32 that, too, and a layer as it came.
  double bytes = (sharded.one_sided ? whole : whole + 4 + whole) * layer;
  bytes += whole * layer * (sharded.kept ? layers : 2);
  const bool gathers_near = sharded.one_sided || !sharded.kept;
  if (sharded.near_group > 0 && gathers_near &&
      (sharded.one_sided || sharded.near_group < sharded.shard_group)) {
    bytes += whole * layer * layers / sharded.near_group;
  }
  if (!sharded.one_sided) return bytes;
  const double replicas =
      sharded.shard_group > 0 ? sharded.shard_group : training.dp;
  if (sharded.gather_bytes != 2) bytes += sharded.gather_bytes * layer;
  // A buffer a client: its part of 64 Mi elements, or the shard it pushes to.
  bytes += replicas * 4 * std::min(most / replicas, layer / replicas);
  if (sharded.devices_of_node > 0) {
    bytes += std::min(most, layer) * sharded.gather_bytes +
             1024.0 * 1024 * sharded.devices_of_node;
  }
  return bytes;
}

TEST_CASE("sharded layers: buffers of random settings, counted twice",
          "[memory]") {
  std::mt19937 random(16);
  const auto whole = [&](int least, int most) {
    return std::uniform_int_distribution<int>(least, most)(random);
  };
  for (int trial = 0; trial < 200; ++trial) {
    TrainingSpec training = LayerByLayer(1 << whole(1, 6));
    ShardedLayers& sharded = training.sharded;
    if (training.dp > 2 && whole(0, 2) == 0) sharded.shard_group /= 2;
    if (whole(0, 2) == 0) sharded.near_group = 2;
    sharded.kept = whole(0, 3) == 0;
    sharded.one_sided = whole(0, 1) == 1;
    sharded.is_fsdp2 = !sharded.one_sided;
    sharded.gather_bytes = whole(0, 1) == 1 ? 2 : 4;
    sharded.devices_of_node = training.dp > 8 ? 8 : 0;
    ModelSpec model = SmallModel(whole(2, 6));
    // Up to 300 million parameters a layer, so that buffers reach their limit.
    model.hidden = 64 << whole(0, 7);
    model.ffn_hidden = model.hidden * whole(1, 4);
    StageLayout layout;
    layout.stages.push_back(
        {{.kind = BlockKind::kDenseLayer, .count = model.layers}});
    const RankMemory memory =
        BuildScheduleMemory(model, training, layout,
                            *Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0"), {})
            .ranks[0];
    INFO("trial " << trial << " dp " << training.dp << " hidden "
                  << model.hidden);
    const auto found = static_cast<double>(memory.fixed[MemoryKind::kBuffers]);
    CHECK(found == Approx(BuffersOf(training, model.LayerParameters(0),
                                    static_cast<double>(model.layers)))
                       .margin(8));
  }
}

// How many gathered layers are there at once while passes run, from a trace:
// from the begin of a gather to the end of the layer, which is known where
// gathers are shorter than layers, so that a pass runs without a gap.
int GatheredAtOnce(bool reshards) {
  constexpr int kCount = 6;
  LowerOptions options;
  options.costs = PassCosts::Uniform(1, 1,
                                     {.forward_s = kCount,
                                      .backward_input_s = kCount,
                                      .backward_weight_s = kCount});
  options.replicas = 2;
  options.data_parallel = DataParallel::kFsdp;
  options.shard_blocks = ShardBlocks::kLayer;
  options.layers.stages = {std::vector<LayerShare>(kCount)};
  options.layers.one_stream = false;
  options.layers.reshard_after_forward = reshards;
  options.network.hop_s = 0.25;
  options.parameter_bytes = {1};
  options.gradient_bytes = {0};
  options.iterations = 1;
  const Program program = Lowered(Registered("1f1b", 1, 1), options);
  FullTrace trace;
  EngineOptions traced;
  traced.trace = &trace;
  REQUIRE(RunFast(program, traced).ok());
  std::vector<double> begins;  // when gathers begin, in order
  std::vector<std::pair<double, double>> passes;
  for (const TraceOp& op : trace.ops()) {
    if (op.replica != 0) continue;
    if (op.kind == OpKind::kAllGather) begins.push_back(op.start_s);
    if (op.kind == OpKind::kPass) passes.emplace_back(op.start_s, op.end_s);
  }
  REQUIRE(passes.size() == 2);
  std::sort(begins.begin(), begins.end());
  REQUIRE(begins.size() == (reshards ? 2 * kCount : kCount));
  std::vector<std::pair<double, int>> changes;
  for (size_t index = 0; index < begins.size(); ++index) {
    const auto layer = static_cast<double>(index % kCount);
    const auto& [start_s, end_s] = passes[index / kCount];
    const double each_s = (end_s - start_s) / kCount;
    double until_s = start_s + (layer + 1) * each_s;
    if (!reshards) {
      // Until its backward, which begins with the last layer.
      const auto& [back_s, back_end_s] = passes[1];
      until_s = back_s + (kCount - layer) * (back_end_s - back_s) / kCount;
    }
    changes.emplace_back(begins[index], 1);
    changes.emplace_back(until_s - 1e-6, -1);
  }
  std::sort(changes.begin(), changes.end());
  int now = 0;
  int most = 0;
  for (const auto& change : changes) {
    now += change.second;
    most = std::max(most, now);
  }
  return most;
}

TEST_CASE("sharded layers: a run has two layers gathered, or all", "[memory]") {
  CHECK(GatheredAtOnce(true) == 2);
  CHECK(GatheredAtOnce(false) == 6);
}

TEST_CASE("sharded layers: a configuration's memory is that of its fields",
          "[memory]") {
  const auto memory = [](const std::string& strategy) {
    auto config = ReadConfig(
        absl::StrCat("schedule: {name: 1f1b}\nmodel: {preset: gpt-tiny}\n"
                     "system: {preset: dgx-h100}\n"
                     "engine: fast\nstrategy: {pp: 1, dp: 8, microbatches: 2, ",
                     strategy, "}\n"),
        "a.yaml");
    INFO(config.status());
    REQUIRE(config.ok());
    config->costs.analytic = true;
    const auto run = Prepare(*config);
    INFO(run.status());
    REQUIRE(run.ok());
    REQUIRE(run->memory_of_ranks() != nullptr);
    return run->memory_of_ranks()->ranks[0].fixed;
  };
  const MemoryBytes fsdp = memory("data_parallel: fsdp, shard_blocks: layer");
  const MemoryBytes odc = memory("data_parallel: odc");
  const MemoryBytes cast = memory("data_parallel: odc, gather_type: bf16");
  const MemoryBytes near = memory("data_parallel: odc, near_group: 8");
  CHECK(fsdp[MemoryKind::kWeights] == 0);
  CHECK(odc[MemoryKind::kWeights] == 0);
  // The largest layer: with embedding or head, whatever is next to it. As it
  // comes in fp32; two of them and a gradient in bf16, and what is pushed.
  const int64_t arrived =
      odc[MemoryKind::kBuffers] - cast[MemoryKind::kBuffers];
  CHECK(arrived > 0);
  CHECK(cast[MemoryKind::kBuffers] == arrived / 4 * (2 * 2 + 2 + 4));
  // With a copy near by it comes in bf16.
  CHECK(near[MemoryKind::kBuffers] - cast[MemoryKind::kBuffers] ==
        Approx(static_cast<double>(fsdp[MemoryKind::kMaster]) / 4 * 8 * 2 / 8)
            .epsilon(1e-3));
}

}  // namespace
}  // namespace pipewright::sharded_layers_test
