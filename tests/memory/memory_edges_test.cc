// Terms of memory that only some configurations have: one device, experts, all
// layers but one frozen, chunks of which some recompute.
#include <catch2/catch.hpp>
#include <vector>

#include "sim/memory/activations.h"
#include "sim/memory/schedule_memory.h"
#include "tests/support/lowering.h"

namespace pipewright::memory_edges_test {
namespace {

constexpr int64_t kHidden = 64;

ModelSpec Model(int64_t layers) {
  ModelSpec model;
  model.layers = layers;
  model.hidden = kHidden;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = 256;
  model.vocabulary = 128;
  model.sequence = 16;
  return model;
}

TrainingSpec Training() {
  TrainingSpec training;
  training.sequence = 16;
  training.flash_attention = false;
  return training;
}

StageLayout Layout(int stages, int64_t layers,
                   BlockKind kind = BlockKind::kDenseLayer) {
  StageLayout layout;
  for (int stage = 0; stage < stages; ++stage) {
    layout.stages.push_back(
        {{.kind = kind, .first_layer = stage * layers, .count = layers}});
  }
  return layout;
}

constexpr char kOneRank[] = "pp 1 vpp 1 microbatches 1\n0: F0 BW0";

MemoryBytes Fixed(const ModelSpec& model, const TrainingSpec& training,
                  const MemoryOptions& options = {},
                  BlockKind kind = BlockKind::kDenseLayer) {
  return BuildScheduleMemory(model, training, Layout(1, model.layers, kind),
                             *Parsed(kOneRank), options)
      .ranks[0]
      .fixed;
}

TEST_CASE("memory: edges: gradient placeholders go where gradients are sharded",
          "[memory]") {
  const auto bytes = [](int zero, int dp, bool placeholders = true) {
    TrainingSpec training = Training();
    training.zero = zero;
    training.dp = dp;
    MemoryOptions options;
    options.placeholders = placeholders;
    return Fixed(Model(2), training, options)[MemoryKind::kPlaceholders];
  };
  const int64_t all = bytes(0, 1);
  // Queries, keys and values of one width, the output, two of the feed-forward
  // part: two bytes each, a shape once.
  CHECK(all > 2 * 2 * kHidden * 256);
  CHECK(bytes(1, 4) == all);
  CHECK(bytes(2, 4) == 0);
  // Over one device nothing is sharded.
  CHECK(bytes(2, 1) == all);
  CHECK(bytes(3, 1) == all);
  CHECK(bytes(0, 1, false) == 0);
}

TEST_CASE("memory: edges: grouped layers have four more workspaces",
          "[memory]") {
  ModelSpec experts = Model(1);
  experts.experts = 4;
  experts.experts_per_token = 2;
  experts.expert_ffn_hidden = 64;
  const int64_t dense = Fixed(Model(1), Training())[MemoryKind::kWorkspace];
  CHECK(dense == (40 << 20) + (128 << 10));
  CHECK(Fixed(experts, Training(), {},
              BlockKind::kExpertLayer)[MemoryKind::kWorkspace] ==
        dense + (int64_t{128} << 20));
}

TEST_CASE("memory: edges: the one layer that is trained has its states",
          "[memory]") {
  const auto masters = [](int64_t frozen) {
    ModelSpec model = Model(3);
    model.frozen_layers = frozen;
    return Fixed(model, Training())[MemoryKind::kMaster];
  };
  const int64_t layer = masters(0) / 3;
  CHECK(masters(0) == 3 * layer);
  CHECK(masters(1) == 2 * layer);
  CHECK(masters(2) == layer);
  CHECK(masters(3) == 0);
}

// Both chunks have equal layers, and so one entry among what is known.
TEST_CASE("memory: edges: chunks that recompute are apart from the others",
          "[memory]") {
  TrainingSpec training = Training();
  training.recompute = Recompute::kFull;
  training.recompute_chunks = {true, false};
  const auto schedule =
      Parsed("pp 1 vpp 2 microbatches 1\n0: F0.0 F0.1 BW0.1 BW0.0");
  const ScheduleMemory memory =
      BuildScheduleMemory(Model(4), training, Layout(2, 2), *schedule, {});
  CHECK(memory.stages[0]->kept < memory.stages[1]->kept);
  training.recompute_chunks = {false, true};
  const ScheduleMemory other =
      BuildScheduleMemory(Model(4), training, Layout(2, 2), *schedule, {});
  CHECK(other.stages[0]->kept == memory.stages[1]->kept);
  CHECK(other.stages[1]->kept == memory.stages[0]->kept);
}

TEST_CASE("memory: edges: without backward one chunk is held at a time",
          "[memory]") {
  for (const int vpp : {2, 3}) {
    Schedule schedule = *Registered("interleaved-1f1b", 2, 4, vpp);
    schedule.backward = BackwardRule::kNone;
    CHECK(PeakActivations(schedule, 1) == std::vector<double>(2, 1.0 / vpp));
  }
}

}  // namespace
}  // namespace pipewright::memory_edges_test
