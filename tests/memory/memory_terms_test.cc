// Each term of a rank's memory against hand arithmetic. Published peaks are
// sums of all of them, and smaller than their tolerance are some.
#include <catch2/catch.hpp>
#include <string>

#include "sim/memory/activations.h"
#include "sim/memory/schedule_memory.h"
#include "tests/support/lowering.h"

namespace pipewright::memory_terms_test {
namespace {

constexpr int64_t kHidden = 64;
constexpr int64_t kTokens = 16;
constexpr int64_t kVocabulary = 128;
constexpr int64_t kElement = 2;  // bf16

// The example of stage_memory_test.cc without dropout and biases.
ModelSpec Model(int64_t layers) {
  ModelSpec model;
  model.layers = layers;
  model.hidden = kHidden;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = 256;
  model.vocabulary = kVocabulary;
  model.sequence = kTokens;
  return model;
}

TrainingSpec Training(Recompute recompute = Recompute::kNone) {
  TrainingSpec training;
  training.sequence = kTokens;
  training.recompute = recompute;
  training.flash_attention = false;
  return training;
}

// Four matrices of attention, two of the feed-forward part, two norms.
constexpr int64_t kLayerParameters =
    4 * kHidden * kHidden + 2 * kHidden * 256 + 2 * kHidden;

StageLayout LayerAStage(int stages, int64_t layers = 1) {
  StageLayout layout;
  for (int stage = 0; stage < stages; ++stage) {
    layout.stages.push_back({{.kind = BlockKind::kDenseLayer,
                              .first_layer = stage * layers,
                              .count = layers}});
  }
  return layout;
}

TEST_CASE("memory: a rank that sends gradients keeps the last of them",
          "[memory]") {
  const auto buffers = [](const Schedule& schedule) {
    const ScheduleMemory memory =
        BuildScheduleMemory(Model(schedule.stages()), Training(),
                            LayerAStage(schedule.stages()), schedule, {});
    std::vector<int64_t> out;
    for (const RankMemory& rank : memory.ranks) {
      out.push_back(rank.fixed[MemoryKind::kBuffers]);
    }
    return out;
  };
  // One tensor of a boundary: a slice's tokens times hidden, in bf16.
  constexpr int64_t kSent = kTokens * kHidden * kElement;
  CHECK(buffers(*Registered("1f1b", 3, 4)) ==
        std::vector<int64_t>{0, kSent, kSent});
  // The second chunk of rank 0 has a stage before it, on rank 1.
  CHECK(buffers(*Registered("interleaved-1f1b", 2, 4, 2)) ==
        std::vector<int64_t>{kSent, kSent});
  // A stage hands on to one of the same rank without sending.
  CHECK(buffers(*Parsed("pp 1 vpp 2 microbatches 1\n"
                        "0: F0.0 F0.1 BW0.1 BW0.0")) ==
        std::vector<int64_t>{0});
}

TEST_CASE("memory: ZeRO 3 has two layers gathered and one gradient",
          "[memory]") {
  const auto fixed = [](int zero, int dp) {
    TrainingSpec training = Training();
    training.dp = dp;
    training.zero = zero;
    // Three layers, so that two are not all.
    return BuildScheduleMemory(Model(3), training, LayerAStage(1, 3),
                               *Parsed("pp 1 vpp 1 microbatches 1\n0: F0 BW0"),
                               {})
        .ranks[0]
        .fixed;
  };
  constexpr int64_t kLayer = kLayerParameters * kElement;
  CHECK(fixed(3, 4)[MemoryKind::kBuffers] == 2 * kLayer + kLayer);
  CHECK(fixed(2, 4)[MemoryKind::kBuffers] == kLayer);
  CHECK(fixed(1, 4)[MemoryKind::kBuffers] == 0);
  CHECK(fixed(3, 1)[MemoryKind::kBuffers] == 0);
  CHECK(fixed(3, 4)[MemoryKind::kWeights] == 3 * kLayer / 4);
}

TEST_CASE("memory: a rank stores a tied table once", "[memory]") {
  const auto weights = [](bool tied, int pp) {
    ModelSpec model = Model(2);
    model.tied_embeddings = tied;
    StageLayout layout = LayerAStage(pp, 2 / pp);
    layout.stages.front().insert(layout.stages.front().begin(),
                                 {.kind = BlockKind::kEmbedding});
    layout.stages.back().push_back({.kind = BlockKind::kHead});
    std::vector<int64_t> out;
    for (const RankMemory& rank :
         BuildScheduleMemory(model, Training(), layout,
                             *Registered("1f1b", pp, 4), {})
             .ranks) {
      out.push_back(rank.fixed[MemoryKind::kWeights]);
    }
    return out;
  };
  constexpr int64_t kTable = kVocabulary * kHidden * kElement;
  constexpr int64_t kLayer = kLayerParameters * kElement;
  constexpr int64_t kNorm = kHidden * kElement;
  CHECK(weights(false, 1) ==
        std::vector<int64_t>{2 * kTable + 2 * kLayer + kNorm});
  CHECK(weights(true, 1) == std::vector<int64_t>{kTable + 2 * kLayer + kNorm});
  // First and last rank have a copy each.
  CHECK(weights(true, 2) ==
        std::vector<int64_t>{kTable + kLayer, kTable + kLayer + kNorm});
}

TEST_CASE("memory: behind an R a backward needs what it needs without any",
          "[memory]") {
  for (const int64_t layers : {1, 3}) {
    for (const Recompute recompute :
         {Recompute::kSelective, Recompute::kFull}) {
      const auto rank = [&](Recompute choice, const char* order) {
        return BuildScheduleMemory(
            Model(layers), Training(choice), LayerAStage(1, layers),
            *Parsed(std::string("pp 1 vpp 1 microbatches 1\n0: ") + order), {});
      };
      const ScheduleMemory plain = rank(Recompute::kNone, "F0 B0 W0");
      const ScheduleMemory again = rank(recompute, "F0 R0 B0 W0");
      const StageMemory& stage = *again.stages[0];
      INFO(layers << " layers, recompute " << static_cast<int>(recompute));
      REQUIRE(stage.recomputed > 0);
      CHECK(stage.kept + stage.recomputed == plain.stages[0]->kept);
      for (const PassKind kind :
           {PassKind::kBackwardInput, PassKind::kBackwardFull}) {
        CHECK(PeakOf(kind, stage, /*has_recompute=*/true)->peak.total() ==
              PeakOf(kind, *plain.stages[0], false)->peak.total());
      }
    }
  }
}

TEST_CASE("memory: both passes of a joint pair are at their highest at once",
          "[memory]") {
  const Schedule schedule =
      *Parsed("pp 1 vpp 1 microbatches 2\n0: F0 (BW0&F1) BW1");
  const Schedule turned =
      *Parsed("pp 1 vpp 1 microbatches 2\n0: F0 (F1&BW0) BW1");
  for (const Schedule& each : {schedule, turned}) {
    const ScheduleMemory memory =
        BuildScheduleMemory(Model(1), Training(), LayerAStage(1), each, {});
    const StageMemory& stage = *memory.stages[0];
    CHECK(memory.ranks[0].peak() - memory.ranks[0].fixed.total() ==
          stage.kept + stage.forward.peak.total() +
              stage.backward_full.peak.total());
  }
}

TEST_CASE("memory: in a joint pair too a W holds its part only", "[memory]") {
  const auto peaks = [](const char* order, double held) {
    return PeakActivations(
        *Parsed(std::string("pp 1 vpp 1 microbatches 3\n0: ") + order),
        held)[0];
  };
  // Behind B0: one whole, a quarter of one; then the pair's forward.
  CHECK(peaks("F0 F1 B0 (F2&BW1) W0 BW2", 0.25) == 2.25);
  CHECK(peaks("F0 F1 B0 (BW1&F2) W0 BW2", 0.25) == 2.25);
  // What runs again is there during F, and from R on.
  CHECK(peaks("F0 F1 R0 BW0 R1 BW1 F2 BW2", 1) == 1);
  CHECK(peaks("F0 F1 R0 BW0 F2 BW1 BW2", 1) == 2);
  CHECK(peaks("F0 F1 F2 R0 BW0 BW1 BW2", 1) == 3);
  CHECK(peaks("F0 (F1&BW0) F2 R1 BW1 BW2", 1) == 2);
  CHECK(peaks("F0 F1 B0 (F2&BW1) W0 BW2", 1) == 3);
  // A B in the pair leaves its part behind it: F2 makes 2 + 0.25 of it.
  CHECK(peaks("F0 (F1&B0) F2 W0 BW1 BW2", 0.25) == 2.25);
}

}  // namespace
}  // namespace pipewright::memory_terms_test
