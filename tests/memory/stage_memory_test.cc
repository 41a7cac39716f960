#include "sim/memory/stage_memory.h"

#include <catch2/catch.hpp>

namespace pipewright::stage_memory_test {
namespace {

// Hidden 64, 4 heads, 16 tokens: numbers that a person can follow.
ModelSpec Gpt() {
  ModelSpec model;
  model.layers = 4;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.ffn_hidden = 256;
  model.vocabulary = 128;
  model.sequence = 16;
  model.dropout = model.layer_norm = true;
  model.positions = 16;
  return model;
}

TrainingSpec Plain() {
  TrainingSpec training;
  training.sequence = 16;
  training.flash_attention = false;
  return training;
}

constexpr double kSbh = 16.0 * 64;

std::vector<StageBlock> Layers(int64_t count) {
  return {{.kind = BlockKind::kDenseLayer, .count = count}};
}

TEST_CASE("memory: a layer keeps what Korthikanti counts", "[memory]") {
  const ModelSpec model = Gpt();
  TrainingSpec training = Plain();
  // arXiv 2205.05198, section 4: sbh(34 + 5as/h), tensor parallelism divides
  // 24 of the 34, sequence parallelism all; selective drops the 5as/h.
  const auto kept = [&](int64_t layers) {
    return static_cast<double>(
        BuildStageMemory(model, training, Layers(layers), 0).kept);
  };
  const double scores = 5.0 * 4 * 16 / 64;
  CHECK(kept(1) == kSbh * (34 + scores));
  CHECK(kept(3) == 3 * kSbh * (34 + scores));
  training.tp = 2;
  CHECK(kept(1) == kSbh * (10 + 24 / 2.0 + scores / 2));
  training.sequence_parallel = true;
  CHECK(kept(1) == kSbh * (34 + scores) / 2);
  training.recompute = Recompute::kSelective;
  CHECK(kept(1) == kSbh * 34 / 2);
  training.recompute = Recompute::kFull;
  CHECK(kept(1) == kSbh * 2 / 2);
  training.tp = 1;
  training.sequence_parallel = false;
  training.recompute = Recompute::kNone;
  training.flash_attention = true;
  // Flash keeps a sum in fp32 for each head and token in place of the scores.
  CHECK(kept(1) == kSbh * 34 + 4.0 * 4 * 16);
}

TEST_CASE("memory: what a split backward leaves is the zero-bubble paper's",
          "[memory]") {
  // arXiv 2401.10241, table 1: M_W = 32 sbh of a layer.
  const StageMemory stage = BuildStageMemory(Gpt(), Plain(), Layers(1), 0);
  CHECK(static_cast<double>(stage.weight_part) == 32 * kSbh);
}

TEST_CASE("memory: static bytes follow the stage of ZeRO", "[memory]") {
  const ModelSpec model = Gpt();
  TrainingSpec training = Plain();
  training.dp = 4;
  const double parameters = model.LayerParameters(0);
  const auto fixed = [&](int zero) {
    training.zero = zero;
    return BuildStageMemory(model, training, Layers(1), 0).fixed;
  };
  const auto is = [&](int64_t bytes, double each) {
    return static_cast<double>(bytes) == Approx(each * parameters).margin(16);
  };
  for (int zero = 0; zero <= 3; ++zero) {
    const MemoryBytes bytes = fixed(zero);
    INFO("zero " << zero);
    CHECK(is(bytes[MemoryKind::kWeights], zero >= 3 ? 0.5 : 2));
    CHECK(is(bytes[MemoryKind::kGradients], zero >= 2 ? 1 : 4));
    CHECK(is(bytes[MemoryKind::kMaster], zero >= 1 ? 1 : 4));
    CHECK(is(bytes[MemoryKind::kMoments], zero >= 1 ? 2 : 8));
  }
}

TEST_CASE("memory: frozen layers hold weights only", "[memory]") {
  ModelSpec model = Gpt();
  model.frozen_layers = 2;
  const StageMemory frozen = BuildStageMemory(model, Plain(), Layers(2), 0);
  CHECK(frozen.fixed[MemoryKind::kWeights] > 0);
  CHECK(frozen.fixed[MemoryKind::kGradients] == 0);
  CHECK(frozen.fixed[MemoryKind::kMoments] == 0);
  CHECK(frozen.kept == 0);
  CHECK(frozen.weight_part == 0);
  CHECK(frozen.weight_shapes.empty());
  // A stage of both kinds: only the later layers are trained.
  const StageMemory both = BuildStageMemory(model, Plain(), Layers(4), 0);
  const StageMemory trained = BuildStageMemory(Gpt(), Plain(), Layers(2), 0);
  CHECK(both.kept == trained.kept);
  CHECK(both.fixed[MemoryKind::kMoments] ==
        trained.fixed[MemoryKind::kMoments]);
}

TEST_CASE("memory: experts are sharded over fewer devices", "[memory]") {
  ModelSpec model = Gpt();
  model.dropout = false;
  model.experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden = 128;
  TrainingSpec training = Plain();
  training.dp = 8;
  training.zero = 1;
  const auto stage = [&](int ep) {
    training.ep = ep;
    return BuildStageMemory(model, training,
                            {{.kind = BlockKind::kExpertLayer}}, 0);
  };
  // Moments are whole over dp whatever the experts' degree is; weights are
  // not.
  CHECK(stage(1).fixed[MemoryKind::kMoments] ==
        stage(8).fixed[MemoryKind::kMoments]);
  CHECK(stage(1).fixed[MemoryKind::kWeights] >
        4 * stage(8).fixed[MemoryKind::kWeights]);
  CHECK(stage(8).has_grouped_layers);
}

TEST_CASE("memory: the highest point of a pass is inside it", "[memory]") {
  for (const Recompute recompute :
       {Recompute::kNone, Recompute::kSelective, Recompute::kNormActivation,
        Recompute::kFull}) {
    TrainingSpec training = Plain();
    training.recompute = recompute;
    const StageMemory stage =
        BuildStageMemory(Gpt(), training,
                         {{.kind = BlockKind::kEmbedding},
                          {.kind = BlockKind::kDenseLayer, .count = 4},
                          {.kind = BlockKind::kHead}},
                         0);
    INFO(static_cast<int>(recompute));
    CHECK(stage.forward.peak.total() >= stage.kept);
    CHECK(stage.backward_full.peak.total() > 0);
    CHECK(stage.backward_input.peak.total() >= stage.weight_part - stage.kept);
    CHECK(stage.backward_weight.peak.total() >= 0);
    CHECK((stage.recomputed > 0) == (recompute != Recompute::kNone));
    CHECK(stage.recompute.peak.total() >= stage.recomputed);
    // What an R has made again, a B behind it need not.
    CHECK(stage.backward_full_after.peak[MemoryKind::kRecomputed] <= 0);
    CHECK(!stage.backward_full.op.empty());
  }
}

TEST_CASE("memory: recomputation keeps less, and only in its chunks",
          "[memory]") {
  TrainingSpec training = Plain();
  const auto kept = [&](Recompute recompute, int chunk) {
    training.recompute = recompute;
    return BuildStageMemory(Gpt(), training, Layers(2), chunk).kept;
  };
  const int64_t none = kept(Recompute::kNone, 0);
  const int64_t selective = kept(Recompute::kSelective, 0);
  const int64_t norms = kept(Recompute::kNormActivation, 0);
  const int64_t full = kept(Recompute::kFull, 0);
  CHECK(selective < none);
  CHECK(norms < none);
  CHECK(full < norms);
  CHECK(full < selective);
  training.recompute_chunks = {true, false};
  CHECK(kept(Recompute::kFull, 0) == full);
  CHECK(kept(Recompute::kFull, 1) == none);
}

TEST_CASE("memory: a tied head stores its table once", "[memory]") {
  ModelSpec model = Gpt();
  const auto both = [&] {
    return BuildStageMemory(
        model, Plain(),
        {{.kind = BlockKind::kEmbedding}, {.kind = BlockKind::kHead}}, 0);
  };
  CHECK(both().tied_table.total() == 0);
  model.tied_embeddings = true;
  CHECK(both().has_table);
  CHECK(both().tied_table[MemoryKind::kWeights] == 2 * 128 * 64);
}

}  // namespace
}  // namespace pipewright::stage_memory_test
