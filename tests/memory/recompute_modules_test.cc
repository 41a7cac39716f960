// Recompute::kSelective by module, against counts by hand: bytes and FLOPs of a
// token in one layer, and which operations of a layer run again.
#include <set>
#include <string>
#include <vector>

#include "sim/cost/analytic.h"
#include "sim/cost/block_prices.h"
#include "sim/memory/stage_memory.h"
#include "sim/model/flops.h"

#include <catch2/catch.hpp>

namespace pipewright::recompute_modules_test {
namespace {

using Module = RecomputeModule;

constexpr int kTokens = 16;

// Latent attention with 4 heads of 16 + 8 and values of 16, compressed to 32
// and 16; experts of width 32, two of eight a token, and a shared one.
ModelSpec Model() {
  ModelSpec model;
  model.layers = 2;
  model.first_dense_layers = 1;
  model.hidden = 64;
  model.heads = model.kv_heads = 4;
  model.q_lora_rank = 32;
  model.kv_lora_rank = 16;
  model.qk_nope_head_dim = 16;
  model.qk_rope_head_dim = 8;
  model.v_head_dim = 16;
  model.gated = true;
  model.ffn_hidden = 128;
  model.experts = 8;
  model.experts_per_token = 2;
  model.expert_ffn_hidden = model.shared_ffn_hidden = 32;
  model.vocabulary = 128;
  model.sequence = kTokens;
  return model;
}

TrainingSpec Training(uint8_t modules) {
  TrainingSpec training;
  training.sequence = kTokens;
  training.recompute = Recompute::kSelective;
  training.recompute_modules = modules;
  return training;
}

StageMemory Layer(uint8_t modules, BlockKind kind) {
  return BuildStageMemory(Model(), Training(modules), {{.kind = kind}}, 0);
}

struct Row {
  Module module;
  // Of a token: bytes given back in a dense layer and in one of experts, FLOPs
  // of both.
  int dense_bytes, expert_bytes, dense_flops, expert_flops;
  std::set<std::string> again;  // operations of a layer of experts
};

// bf16 has 2 bytes; a multiply-add counts as two.
const std::vector<Row>& Rows() {
  static const std::vector<Row> rows = {
      // A sum in fp32 for each head.
      {Module::kCoreAttention,
       4 * 4,
       4 * 4,
       2 * kTokens * 4 * (24 + 16),
       2 * kTokens * 4 * (24 + 16),
       {"attention"}},
      {Module::kExpertActivation, 0, 2 * 2 * 32, 0, 0, {"experts activation"}},
      // The norm in front of a dense part is one with its product.
      {Module::kNorms,
       2 * 64,
       2 * 2 * 64,
       0,
       0,
       {"attention norm", "feed-forward norm"}},
      // Both norms' outputs, queries and keys of 24, values of 16, but for the
      // key's part with the position.
      {Module::kLatentUp,
       2 * (32 + 16 + 4 * (24 + 24 + 16) - 8),
       2 * (32 + 16 + 4 * (24 + 24 + 16) - 8),
       2 * (32 * 4 * 24 + 16 * 4 * (16 + 16)),
       2 * (32 * 4 * 24 + 16 * 4 * (16 + 16)),
       {"query norm", "query up", "key-value norm", "key-value up",
        "rotary embedding"}},
      {Module::kDense, 2 * (64 + 2 * 128 + 128), 0, 2 * 3 * 64 * 128, 0, {}},
      // Probabilities in fp32; rows of two experts, before and behind the
      // activation; those of the shared expert.
      {Module::kExperts,
       0,
       4 * 8 + 2 * 2 * (64 + 2 * 32 + 32) + 2 * (2 * 32 + 32),
       0,
       2 * (64 * 8 + 2 * 3 * 64 * 32 + 3 * 64 * 32),
       {"router", "dispatch", "experts gate-up", "experts activation",
        "experts down", "combine", "shared gate-up", "shared activation",
        "shared down"}},
      {Module::kSharedExperts,
       0,
       2 * (2 * 32 + 32),
       0,
       2 * 3 * 64 * 32,
       {"shared gate-up", "shared activation", "shared down"}},
  };
  return rows;
}

int64_t GivenBack(uint8_t modules, BlockKind kind) {
  return Layer(0, kind).kept - Layer(modules, kind).kept;
}

TEST_CASE("recompute: each module gives back what it makes and keeps its input",
          "[memory]") {
  for (const Row& row : Rows()) {
    const auto module = static_cast<uint8_t>(row.module);
    INFO(int{module});
    CHECK(GivenBack(module, BlockKind::kDenseLayer) ==
          kTokens * row.dense_bytes);
    CHECK(GivenBack(module, BlockKind::kExpertLayer) ==
          kTokens * row.expert_bytes);
  }
}

TEST_CASE("recompute: attention's output in 16 bit beside the cast one",
          "[memory]") {
  // Of a token: four sums in fp32, four heads of 16 values.
  struct Case {
    Precision precision;
    bool transformer_engine, fp8_attention;
    int bytes;
  };
  for (const Case& each :
       {Case{Precision::kBf16, true, false, 4 * 4},
        Case{Precision::kFp8Block, true, false, 4 * 4 + 2 * 4 * 16},
        Case{Precision::kFp8Block, true, true, 4 * 4},
        Case{Precision::kFp8Block, false, false, 4 * 4}}) {
    const auto kept = [&](uint8_t modules) {
      TrainingSpec training = Training(modules);
      training.precision = each.precision;
      training.keeps_narrow_weights = each.transformer_engine;
      training.execution.fp8_attention = each.fp8_attention;
      return BuildStageMemory(Model(), training,
                              {{.kind = BlockKind::kDenseLayer}}, 0)
          .kept;
    };
    INFO(static_cast<int>(each.precision) << each.transformer_engine);
    CHECK(kept(0) - kept(static_cast<uint8_t>(Module::kCoreAttention)) ==
          kTokens * each.bytes);
  }
}

TEST_CASE("recompute: any set of modules adds up", "[memory]") {
  for (const BlockKind kind :
       {BlockKind::kDenseLayer, BlockKind::kExpertLayer}) {
    const StageMemory plain = Layer(0, kind);
    for (int set = 1; set < 128; ++set) {
      int64_t bytes = 0;
      for (const Row& row : Rows()) {
        const int module = static_cast<int>(row.module);
        // Experts contain both.
        const int inside = static_cast<int>(Module::kExpertActivation) |
                           static_cast<int>(Module::kSharedExperts);
        const bool contained =
            (set & static_cast<int>(Module::kExperts)) != 0 &&
            (module & inside) != 0;
        if ((set & module) == 0 || contained) continue;
        bytes +=
            kind == BlockKind::kDenseLayer ? row.dense_bytes : row.expert_bytes;
      }
      INFO(set);
      const StageMemory stage = Layer(static_cast<uint8_t>(set), kind);
      CHECK(plain.kept - stage.kept == kTokens * bytes);
      CHECK(stage.recomputed == kTokens * bytes);
      CHECK(stage.weight_part == plain.weight_part);
      // What R has made again, the backward behind it need not.
      CHECK(stage.backward_full_after.peak.total() ==
            plain.backward_full.peak.total());
    }
  }
}

TEST_CASE("recompute: a module is made again as a whole", "[memory]") {
  // All of it is there once its last operation has run again, beside what that
  // one writes; made one by one it never would be.
  const auto experts = static_cast<uint8_t>(Module::kExperts);
  const StageMemory stage = Layer(experts, BlockKind::kExpertLayer);
  CHECK(stage.backward_full.peak[MemoryKind::kRecomputed] >=
        stage.recomputed - kTokens * 2 * 2 * 64);
  CHECK(stage.backward_full.peak.total() >=
        Layer(0, BlockKind::kExpertLayer).backward_full.peak.total() +
            stage.recomputed);
}

TEST_CASE("recompute: the FLOPs of each module run again", "[memory]") {
  const StageLayout layout = {
      {{{.kind = BlockKind::kDenseLayer},
        {.kind = BlockKind::kExpertLayer, .first_layer = 1}}}};
  for (const Row& row : Rows()) {
    const auto module = static_cast<uint8_t>(row.module);
    INFO(int{module});
    CHECK(RecomputedFlopsPerToken(Model(), Training(module), layout, {0},
                                  false) ==
          Approx(row.dense_flops + row.expert_flops));
  }
}

TEST_CASE("recompute: the operations of each module take their time again",
          "[memory]") {
  AnalyticOptions options;
  options.device = FindDevice("h100").value();
  for (const Row& row : Rows()) {
    const TrainingSpec training = Training(static_cast<uint8_t>(row.module));
    const std::vector<ModelOp> ops =
        BlockOps(Model(), training, BlockKind::kExpertLayer, 1);
    const std::vector<OpTime> times =
        BlockTimes(Model(), training, options, BlockKind::kExpertLayer, 1);
    double expected_s = 0;
    std::set<std::string> found;
    for (const OpTime& time : times) {
      if (row.again.count(time.name) == 0) continue;
      found.insert(time.name);
      expected_s += time.seconds[0];
    }
    INFO(static_cast<int>(row.module));
    CHECK(found == row.again);
    CHECK(SumBlock(training, options, ops, times, BlockKind::kExpertLayer,
                   Recompute::kSelective)
              .recompute == Approx(expected_s));
  }
}

TEST_CASE("recompute: every Nth layer", "[memory]") {
  TrainingSpec training = Training(0);
  training.recompute = Recompute::kFull;
  const auto kept = [&](int64_t layers, int every) {
    training.recompute_every = every;
    return BuildStageMemory(Model(), training,
                            {{.kind = BlockKind::kDenseLayer, .count = layers}},
                            0)
        .kept;
  };
  const int64_t whole = kept(1, 2);
  const int64_t again = kept(1, 1);
  REQUIRE(again < whole);
  CHECK(kept(2, 2) == whole + again);
  CHECK(kept(7, 3) == 5 * whole + 2 * again);
  CHECK(training.RecomputedLayers(2, 5) == 2);  // the third and the sixth
}

TEST_CASE("recompute: weights in 8 bit alone", "[memory]") {
  // A linear layer without bias of 64 x 256, among the ops of a GPT layer.
  TrainingSpec training = Training(0);
  const auto weights = [&](bool narrow, bool both_ways, Precision precision) {
    training.precision = precision;
    training.keeps_narrow_weights = precision != Precision::kBf16;
    training.narrow_weights = narrow;
    training.reads_both_ways = both_ways;
    return BuildStageMemory(Model(), training,
                            {{.kind = BlockKind::kDenseLayer}}, 0)
        .fixed[MemoryKind::kWeights];
  };
  double linear = 0;
  for (const ModelOp& op :
       BlockOps(Model(), training, BlockKind::kDenseLayer)) {
    if (op.kind == OpClass::kGemm) linear += op.parameters;
  }
  const auto bytes = [&](double each) { return Approx(each * linear); };
  const auto wide =
      static_cast<double>(weights(false, false, Precision::kBf16));
  const auto more = [&](bool narrow, bool both_ways, Precision precision) {
    return static_cast<double>(weights(narrow, both_ways, precision)) - wide;
  };
  // Two copies beside 16 bit on Hopper, one on Blackwell.
  CHECK(more(false, false, Precision::kFp8) == bytes(2));
  CHECK(more(false, true, Precision::kFp8) == bytes(1));
  // In place of 16 bit.
  CHECK(more(true, false, Precision::kFp8) == bytes(0).margin(1));
  CHECK(more(true, true, Precision::kFp8Tensorwise) == bytes(-1));
  // Scales along either dimension need a copy each, whatever the device.
  CHECK(more(true, true, Precision::kMxfp8) == bytes(2.0 / 32));
}

}  // namespace
}  // namespace pipewright::recompute_modules_test
