// What each precision of linear layers means for bytes and exchanges.
#include "sim/model/precision.h"

#include <catch2/catch.hpp>

#include "sim/model/model.h"
#include "sim/model/ops.h"

namespace pipewright::precision_test {
namespace {

constexpr Precision kAll[] = {Precision::kBf16,          Precision::kFp8,
                              Precision::kFp8Tensorwise, Precision::kFp8Block,
                              Precision::kMxfp8,         Precision::kNvfp4};

TEST_CASE("precision: bytes of an operand with its scales", "[model]") {
  CHECK(OperandBytes(Precision::kBf16) == 2);
  CHECK(OperandBytes(Precision::kFp8) == 1);
  CHECK(OperandBytes(Precision::kFp8Tensorwise) == 1);
  // A scale in fp32 for 128 values; of 8 bit for 32, and for 16 of 4 bit.
  CHECK(OperandBytes(Precision::kFp8Block) == (128 * 8 + 32) / 8.0 / 128);
  CHECK(OperandBytes(Precision::kMxfp8) == (32 * 8 + 8) / 8.0 / 32);
  CHECK(OperandBytes(Precision::kNvfp4) == (16 * 4 + 8) / 8.0 / 16);
  for (const Precision precision : kAll) {
    CHECK(IsNarrow(precision) == (OperandBytes(precision) < 2));
    CHECK(IsFp8(precision) ==
          (IsNarrow(precision) && precision != Precision::kNvfp4));
  }
}

// With sequence parallelism a module gathers what it has cast; sums stay in 16
// bit, and so does all that the head exchanges.
TEST_CASE("precision: what tensor parallelism gathers is cast before",
          "[model]") {
  const ModelSpec* model = nullptr;
  for (const ModelSpec& each : AllModels()) {
    if (each.name == "llama3-8b") model = &each;
  }
  REQUIRE(model != nullptr);
  TrainingSpec training;
  training.sequence = 4096;
  training.tp = 4;
  training.sequence_parallel = true;
  const auto bytes = [&](Precision precision, BlockKind kind, CommKind comm,
                         OpPass pass) {
    training.precision = precision;
    double sum = 0;
    for (const ModelOp& op : BlockOps(*model, training, kind, 0)) {
      for (const OpComm& each : op.comms) {
        if (each.kind == comm && each.pass == pass) sum += each.bytes;
      }
    }
    return sum;
  };
  const double wide = 4096.0 * 4096 * 2;  // tokens x hidden in bf16
  for (const Precision precision : kAll) {
    const double part = OperandBytes(precision) / 2;
    // Inputs of qkv and of gate-up.
    CHECK(bytes(precision, BlockKind::kDenseLayer, CommKind::kAllGather,
                OpPass::kForward) == Approx(2 * wide * part));
    // Gradients of the outputs of both row products, along both dimensions
    // where scales lie along the inner one.
    CHECK(bytes(precision, BlockKind::kDenseLayer, CommKind::kAllGather,
                OpPass::kBackwardInput) ==
          Approx(2 * wide * part * (CastsBothWays(precision) ? 2 : 1)));
    for (const OpPass pass : {OpPass::kForward, OpPass::kBackwardInput}) {
      CHECK(bytes(precision, BlockKind::kDenseLayer, CommKind::kReduceScatter,
                  pass) == Approx(2 * wide));
    }
    CHECK(bytes(precision, BlockKind::kHead, CommKind::kAllGather,
                OpPass::kForward) == Approx(wide));
  }
}

}  // namespace
}  // namespace pipewright::precision_test
