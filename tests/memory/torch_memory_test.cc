// What PyTorch's tensor parallelism, pipelining and losses hold, by hand
// arithmetic.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/memory/schedule_memory.h"
#include "tests/support/lowering.h"

namespace pipewright::torch_memory_test {
namespace {

constexpr int64_t kHidden = 64;
constexpr int64_t kTokens = 32;
constexpr int64_t kVocabulary = 128;

ModelSpec Model() {
  ModelSpec model;
  model.layers = 8;
  model.hidden = kHidden;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = 256;
  model.vocabulary = kVocabulary;
  model.sequence = kTokens;
  return model;
}

TrainingSpec Training(int tp) {
  TrainingSpec training;
  training.sequence = kTokens;
  training.tp = tp;
  training.sequence_parallel = tp > 1;
  return training;
}

const ModelOp& Named(const std::vector<ModelOp>& ops, const char* name) {
  for (const ModelOp& op : ops) {
    if (op.name == name) return op;
  }
  FAIL(name);
  return ops.front();
}

TEST_CASE("torch memory: a loss in parallel has a tensor for each step",
          "[memory]") {
  const auto loss = [](const TrainingSpec& training) {
    return Named(BlockOps(Model(), training, BlockKind::kHead), "loss");
  };
  constexpr double kLogits = kTokens * kVocabulary;
  TrainingSpec training = Training(1);
  training.fused_cross_entropy = false;
  training.plain_cross_entropy = true;
  const ModelOp whole = loss(training);
  CHECK(whole.saved_until_backward == 4 * kLogits);
  CHECK(whole.backward_workspace == 8 * kLogits);
  training.tp = 4;
  const ModelOp parallel = loss(training);
  CHECK(parallel.saved_until_backward == 4 * kLogits / 4);
  CHECK(parallel.forward_workspace == 10 * kLogits / 4);
  CHECK(parallel.backward_workspace == 12 * kLogits / 4);
  // A fused one overwrites.
  training = Training(1);
  CHECK(loss(training).backward_workspace == 0);
}

TEST_CASE("torch memory: what is gathered for a product is kept", "[memory]") {
  TrainingSpec training = Training(4);
  const auto layer = [&] {
    return BlockOps(Model(), training, BlockKind::kDenseLayer);
  };
  const ModelOp again = Named(layer(), "qkv");
  training.keeps_gathered = true;
  const ModelOp kept = Named(layer(), "qkv");
  constexpr double kWhole = 2.0 * kTokens * kHidden;
  CHECK(again.saved_until_weight == 0);
  CHECK(kept.saved_until_weight == kWhole * 3 / 4);
  CHECK(again.weight_workspace == kWhole);
  CHECK(kept.weight_workspace == 0);
  // W gathers nothing then.
  CHECK(again.comms.size() == kept.comms.size() + 1);
  CHECK(Named(layer(), "attention projection").saved_until_weight == 0);
}

TEST_CASE("torch memory: frozen layers without adapters keep no inputs",
          "[memory]") {
  ModelSpec model = Model();
  const auto kept = [&](const char* name) {
    return Named(BlockOps(model, Training(1), BlockKind::kDenseLayer), name);
  };
  const ModelOp attention = kept("attention");
  const double norm = kept(kFeedForwardNorm).saved_until_weight;
  CHECK(norm == 2.0 * kTokens * kHidden);
  model.lora_rank = 4;
  CHECK(kept(kFeedForwardNorm).saved_until_weight == norm);
  CHECK(kept("activation").saved_until_weight > 0);
  model.lora_qkv_only = true;
  CHECK(kept("attention norm").saved_until_weight == norm);
  CHECK(kept(kFeedForwardNorm).saved_until_weight == 0);
  CHECK(kept("activation").saved_until_weight == 0);
  // Attention reads its own output.
  CHECK(kept("attention").saved_until_weight == 0);
  CHECK(kept("attention").saved_until_backward ==
        attention.saved_until_backward + attention.saved_until_weight);
}

// [rank] buffers of 1F1B and of two chunks a rank.
std::vector<int64_t> Buffers(const Schedule& schedule, StageBuffers kept) {
  TrainingSpec training = Training(1);
  training.stage_buffers = kept;
  StageLayout layout;
  for (int stage = 0; stage < schedule.stages(); ++stage) {
    layout.stages.push_back({{.kind = BlockKind::kDenseLayer, .count = 1}});
  }
  layout.stages.back().push_back({.kind = BlockKind::kHead});
  std::vector<int64_t> out;
  for (const RankMemory& rank :
       BuildScheduleMemory(Model(), training, layout, schedule, {}).ranks) {
    out.push_back(rank.fixed[MemoryKind::kBuffers]);
  }
  return out;
}

TEST_CASE("torch memory: stages have buffers for all microbatches",
          "[memory]") {
  constexpr int64_t kSent = 2 * kTokens * kHidden;
  constexpr int64_t kLogits = 2 * kTokens * kVocabulary;
  constexpr int64_t kMicrobatches = 4;
  // Rank 0 receives gradients. Rank 1 has two in flight, whose inputs count as
  // activations, keeps gradients of inputs, and receives gradients. Rank 2 has
  // one in flight.
  const Schedule schedule = *Registered("1f1b", 3, kMicrobatches);
  CHECK(Buffers(schedule, StageBuffers::kReceived) ==
        std::vector<int64_t>{kMicrobatches * kSent,
                             (3 * kMicrobatches - 2) * kSent,
                             (2 * kMicrobatches - 1) * kSent});
  CHECK(Buffers(schedule, StageBuffers::kLogits) ==
        std::vector<int64_t>{
            kMicrobatches * kSent, (3 * kMicrobatches - 2) * kSent,
            (2 * kMicrobatches - 1) * kSent + kMicrobatches * kLogits});
  // Three and two of four are in flight and counted there.
  CHECK(Buffers(schedule, StageBuffers::kOutputs) ==
        std::vector<int64_t>{
            (kMicrobatches + 1) * kSent, (3 * kMicrobatches - 2 + 2) * kSent,
            (2 * kMicrobatches - 1) * kSent + kMicrobatches * kLogits});
  CHECK(Buffers(schedule, StageBuffers::kNone) ==
        std::vector<int64_t>{0, kSent, kSent});
  // Outputs stay until their backward, but those of the last stage.
  TrainingSpec training = Training(1);
  training.stage_buffers = StageBuffers::kReceived;
  const auto held = [&](BlockKind kind) {
    return MegatronMemory()
        ->stage(Model(), training, {{.kind = kind, .count = 1}}, 0)
        .per_microbatch;
  };
  CHECK(held(BlockKind::kDenseLayer) == kSent);
  CHECK(held(BlockKind::kHead) == 0);
}

}  // namespace
}  // namespace pipewright::torch_memory_test
