// Layers that are sharded one by one: fsdp with strategy.shard_blocks layer,
// and odc.
#include <algorithm>

#include "sim/base/error_parts.h"
#include "sim/base/status.h"
#include "sim/config/config_fields.h"
#include "sim/config/prepare_parts.h"
#include "sim/cost/device.h"
#include "sim/model/ops.h"

namespace pipewright {
namespace {

// Odc: elements of all clients' buffers at an owner, and the bytes of memory
// that an addition reads and writes for each (sail-sg/odc,
// scatter_accumulate.py: two reads and a write in fp32). [framework source]
constexpr double kPushBufferElements = 64.0 * (1 << 20);
constexpr double kBytesOfAddition = 12;
// How often an owner of odc looks for pushes (sail-sg/odc,
// scatter_accumulate.py). [framework source, s]
constexpr double kOwnerPoll = 100e-6;

// Share of one layer, embedding or head.
LayerShare ShareOf(const PreparedModel& model, const StageBlock& block,
                   int64_t layer) {
  LayerShare share = {.parameters = 0, .stored = 0};
  for (const ModelOp& op : model.Ops(block.kind, layer)) {
    share.stored += block.part * op.parameters;
    if (!op.is_frozen) share.parameters += block.part * op.parameters;
  }
  return share;
}

// Shares of one stage. Embedding and head go with the layer next to them and
// take none of its time; a stage without layers is one.
std::vector<LayerShare> SharesOf(const PreparedModel& model,
                                 const std::vector<StageBlock>& blocks) {
  std::vector<LayerShare> shares;
  LayerShare before = {.parameters = 0, .stored = 0};
  const auto add = [](const LayerShare& from, LayerShare* to) {
    to->parameters += from.parameters;
    to->stored += from.stored;
  };
  for (const StageBlock& block : blocks) {
    const bool ends =
        block.kind == BlockKind::kEmbedding || block.kind == BlockKind::kHead;
    for (int64_t at = 0; at < block.count; ++at) {
      const LayerShare share = ShareOf(model, block, block.first_layer + at);
      if (!ends) {
        shares.push_back(share);
        add(before, &shares.back());
        before = {.parameters = 0, .stored = 0};
      } else {
        add(share, shares.empty() ? &before : &shares.back());
      }
    }
  }
  if (shares.empty()) shares.push_back(before);
  return shares;
}

}  // namespace

std::vector<std::vector<LayerShare>> LayerShares(const PreparedModel& model) {
  std::vector<std::vector<LayerShare>> stages;
  for (const std::vector<StageBlock>& blocks : model.layout.stages) {
    stages.push_back(SharesOf(model, blocks));
  }
  return stages;
}

// The repository of odc pulls fp32 and casts; what has a copy near by pulls
// bf16.
double GatherBytesOf(const StrategyChoice& strategy) {
  const bool odc = strategy.data_parallel == DataParallel::kOdc;
  const bool near = strategy.near_group.value_or(0) > 0;
  const GatherType type = strategy.gather_type.value_or(
      odc && !near ? GatherType::kFp32 : GatherType::kBf16);
  return type == GatherType::kFp32 ? 4 : 2;
}

absl::Status PrepareLayers(const RunConfig& config,
                           const TrainingSpec& training, PreparedRun* run) {
  LowerOptions& lower = run->lower;
  const StrategyChoice& strategy = config.strategy;
  const bool odc = lower.data_parallel == DataParallel::kOdc;
  if (!run->prepared_model) {
    return BadValue(
        config.Field(odc ? "strategy.data_parallel" : "strategy.shard_blocks"),
        odc ? "odc" : "layer",
        "with a model (--model), whose layers are gathered and reduced one by "
        "one");
  }
  // The order's copies are those of a plan, not of the schedule.
  if (run->offload && run->offload->mode != OffloadMode::kNone) {
    return BadValue(config.Field("strategy.offload"),
                    ChoiceName(OffloadChoices(), run->offload->mode),
                    odc ? "none with strategy.data_parallel odc"
                        : "none with strategy.shard_blocks layer");
  }
  LayerOptions& layers = lower.layers;
  layers.stages = LayerShares(*run->prepared_model);
  layers.reshard_after_forward = strategy.reshard_after_forward.value_or(true);
  layers.shard_group = strategy.shard_group.value_or(0);
  layers.near_group = strategy.near_group.value_or(0);
  layers.reduces_once = strategy.whole_gradients.value_or(false);
  layers.one_stream = strategy.one_comm_stream.value_or(true);
  if (strategy.shard_copies.value_or(false) && run->costs.analytic) {
    const DeviceSpec& device = run->costs.analytic->device;
    layers.copies_bytes_per_s = device.hbm_bytes_per_s * device.hbm_sustained;
    // Gradients are made in the type of the weights that were gathered.
    layers.made_part = GatherBytesOf(strategy) / training.gradient_bytes;
  }
  layers.pulls_apart = strategy.pull_flows == PullFlows::kApart;
  layers.poll_s = strategy.owner_poll_s.value_or(kOwnerPoll);
  const double bytes = GatherBytesOf(strategy);
  for (double& stage : lower.parameter_bytes) {
    stage = stage / training.weight_bytes * bytes;
  }
  const double sharded =
      layers.shard_group > 0 ? layers.shard_group : lower.replicas;
  layers.push_buffer_bytes =
      kPushBufferElements / sharded * training.gradient_bytes;
  if (run->costs.device) {
    layers.adds_bytes_per_s = run->costs.device->hbm_bytes_per_s *
                              training.gradient_bytes / kBytesOfAddition;
  }
  return absl::OkStatus();
}

}  // namespace pipewright
