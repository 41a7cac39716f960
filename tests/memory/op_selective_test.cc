// Recomputation by operations: what of a layer of Llama runs again, and what it
// keeps, counted by hand.
#include <catch2/catch.hpp>
#include <string>

#include "sim/memory/stage_memory.h"
#include "sim/model/model.h"
#include "sim/model/ops.h"

namespace pipewright::op_selective_test {
namespace {

const ModelSpec& Llama() {
  for (const ModelSpec& each : AllModels()) {
    if (each.name == "llama3-8b") return each;
  }
  FAIL();
  return AllModels().front();
}

TrainingSpec Long(Recompute recompute) {
  TrainingSpec training;
  training.sequence = 8192;
  training.recompute = recompute;
  return training;
}

// wq kept, wk again, wv kept, wo again, w1 kept, w3 again, w2 kept.
TEST_CASE("op-selective: every second product of a layer runs again",
          "[memory]") {
  for (const ModelOp& op : BlockOps(Llama(), Long(Recompute::kOpSelective),
                                    BlockKind::kDenseLayer, 0)) {
    INFO(op.name);
    const double again = RecomputedPart(op, Recompute::kOpSelective);
    if (op.name == "qkv") {
      CHECK(again == Approx(8.0 / 48));
    } else if (op.name == "attention" || op.name == "down") {
      CHECK(again == 0);
    } else if (op.name == "gate-up") {
      CHECK(again == 0.5);
    } else if (op.kind == OpClass::kGemm) {
      CHECK(again == 1);
    }
  }
}

// Bytes of a token in bf16: the layer's input, queries, values and the context
// of attention with a sum a head in fp32, the output of w1.
TEST_CASE("op-selective: what a layer keeps, by hand", "[memory]") {
  const auto kept = [](Recompute recompute) {
    return static_cast<double>(
               BuildStageMemory(Llama(), Long(recompute),
                                {{.kind = BlockKind::kDenseLayer}}, 0)
                   .kept) /
           8192;
  };
  const double by_hand = 2 * (4096.0 + 4096 + 1024 + 4096 + 14336) + 4 * 32;
  CHECK(kept(Recompute::kOpSelective) == Approx(by_hand).epsilon(0.01));
  CHECK(kept(Recompute::kOpSelective) < 0.6 * kept(Recompute::kNone));
  CHECK(kept(Recompute::kFull) == Approx(2 * 4096.0));
}

TEST_CASE("recompute layers: the first ones of a stage alone", "[memory]") {
  TrainingSpec training = Long(Recompute::kFull);
  const auto kept = [&](int layers) {
    training.recompute_layers = layers;
    return BuildStageMemory(Llama(), training,
                            {{.kind = BlockKind::kDenseLayer, .count = 4}}, 0)
        .kept;
  };
  const int64_t all = kept(0);
  training.recompute = Recompute::kNone;
  const int64_t none = kept(0);
  training.recompute = Recompute::kFull;
  CHECK(kept(4) == all);
  CHECK(kept(9) == all);
  CHECK(kept(1) == none - (none - all) / 4);
  CHECK(kept(3) == none - 3 * (none - all) / 4);
}

// early_stop of torch.utils.checkpoint: the last product is not needed.
TEST_CASE("recompute: stopping early leaves the last product", "[memory]") {
  double whole = 0;
  double early = 0;
  for (const ModelOp& op :
       BlockOps(Llama(), Long(Recompute::kFull), BlockKind::kDenseLayer, 0)) {
    const double flops = op.Work(OpPass::kForward).flops;
    whole += RecomputedPart(op, Recompute::kFull) * flops;
    early += RecomputedPart(op, Recompute::kFull, true) * flops;
  }
  CHECK(whole - early == Approx(2.0 * 8192 * 4096 * 14336));
}

}  // namespace
}  // namespace pipewright::op_selective_test
