// Casts of fp8 beside their products, products of experts, and the interval
// that follows from kernels.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "sim/cost/analytic.h"
#include "sim/cost/cast_time.h"
#include "sim/cost/estimate_error.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"
#include "sim/cost/silicon.h"
#include "sim/model/model.h"

namespace pipewright::cast_time_test {
namespace {

ModelOp Linear(double m, double n, double k) {
  ModelOp op;
  op.kind = OpClass::kGemm;
  op.m = m;
  op.n = n;
  op.k = k;
  op.has_weight_pass = true;
  for (OpWork& work : op.work) work = {2 * m * n * k, m * n + n * k + m * k};
  return op;
}

AnalyticOptions On(const char* device) {
  AnalyticOptions options;
  options.device = *FindDevice(device);
  options.silicon = Silicon::Shipped(device);
  return options;
}

// H100, 8192 x 8192 to fp8: 0.067 ms with a known scale; with the search for
// the largest value 0.177 ms in one campaign and 0.072 ms in the other
// (ai-dynamo/aiconfigurator 095f58a51c4c).
TEST_CASE("cast: measured casts are those of the source", "[cost]") {
  const auto silicon = Silicon::Shipped("h100");
  const double elements = 8192.0 * 8192;
  CHECK(silicon->Cast("static", elements)->seconds ==
        Approx(67.7e-6).epsilon(0.03));
  CHECK(silicon->Cast("tensor", elements)->seconds ==
        Approx(176.8e-6).epsilon(0.05));
  CHECK(silicon->Cast("token", elements)->seconds ==
        Approx(71.7e-6).epsilon(0.15));
  CHECK_FALSE(silicon->Cast("none", elements));
  CHECK_FALSE(Silicon::Shipped("a100")->Cast("static", elements));
}

// The bare product of 8192^3 on H100: 0.708 and 0.764 ms in two campaigns.
TEST_CASE("cast: a product of fp8 is without the cast inside", "[cost]") {
  TrainingSpec training;
  training.precision = Precision::kFp8;
  AnalyticOptions options = On("h100");
  options.sustained = false;
  const KernelEstimate bare = EstimateKernel(
      options, training, true, Linear(8192, 8192, 8192), OpPass::kForward);
  CHECK(bare.seconds > 0.69e-3);
  CHECK(bare.seconds < 0.78e-3);
  const double whole =
      options.silicon->Product("fp8", "TN", 8192, 8192, 8192)->seconds;
  CHECK(whole > bare.seconds + 60e-6);
  CHECK(CastInside(options, "bfloat16", 1e12, 1e7) == 0);
}

TEST_CASE("cast: input before F, gradient before B, none before W", "[cost]") {
  TrainingSpec training;
  const AnalyticOptions hopper = On("h100");
  const ModelOp op = Linear(8192, 4096, 16384);
  const auto cast = [&](const AnalyticOptions& options, OpPass pass,
                        bool after_norm) {
    return CastSeconds(options, training, op, pass, after_norm);
  };
  CHECK(cast(hopper, OpPass::kForward, false) == 0);  // bf16
  training.precision = Precision::kFp8;
  const double forward = cast(hopper, OpPass::kForward, false);
  const double backward = cast(hopper, OpPass::kBackwardInput, false);
  // Four bytes a value at some 3 TB/s; the input is four times as wide.
  CHECK(forward == Approx(8192.0 * 16384 * 4 / 3.0e12).epsilon(0.1));
  CHECK(forward / backward == Approx(4).epsilon(0.1));
  CHECK(cast(hopper, OpPass::kBackwardWeight, false) == 0);
  // A norm writes both copies in the bytes of its 16 bit output.
  CHECK(cast(hopper, OpPass::kForward, true) == 0);
  // Blackwell needs no transposed copy.
  AnalyticOptions other = hopper;
  other.device.architecture = "blackwell";
  CHECK(cast(other, OpPass::kForward, false) / forward ==
        Approx(0.75).epsilon(0.05));
  // Neither does a frozen layer.
  ModelOp frozen = op;
  frozen.has_weight_pass = false;
  CHECK(CastSeconds(hopper, training, frozen, OpPass::kForward, false) <
        0.8 * forward);
  // The output head stays in 16 bit, so fp8 leaves its times.
  const ModelSpec* model = nullptr;
  for (const ModelSpec& each : AllModels()) {
    if (each.name == "llama3-8b") model = &each;
  }
  REQUIRE(model != nullptr);
  training.sequence = 8192;
  const auto eight = BlockTimes(*model, training, hopper, BlockKind::kHead, 0);
  training.precision = Precision::kBf16;
  const auto sixteen =
      BlockTimes(*model, training, hopper, BlockKind::kHead, 0);
  for (size_t index = 0; index < eight.size(); ++index) {
    if (eight[index].name != "output head") continue;
    CHECK(eight[index].seconds[0] == sixteen[index].seconds[0]);
  }
}

TEST_CASE("cast: router and heads stay in 16 bit", "[cost]") {
  AnalyticOptions options = On("h100");
  options.sustained = false;
  options.network = {8, 450e9, 50e9};
  ModelSpec model = *FindModel("qwen3-30b-a3b");
  model.mtp_layers = 1;
  TrainingSpec training;
  training.sequence = 4096;
  const auto compare = [&](BlockKind kind, const char* name) {
    struct Found {
      ModelOp op;
      OpTime time;
    };
    std::vector<Found> found;
    for (const Precision precision : {Precision::kBf16, Precision::kFp8}) {
      training.precision = precision;
      const auto ops = BlockOps(model, training, kind, 0);
      const auto times = BlockTimes(model, training, options, kind, 0);
      for (size_t index = 0; index < ops.size(); ++index) {
        if (ops[index].name == name)
          found.push_back({ops[index], times[index]});
      }
    }
    INFO(name);
    REQUIRE(found.size() == 2);
    for (int pass = 0; pass < kNumOpPasses; ++pass) {
      CHECK(found[0].op.work[pass].bytes == found[1].op.work[pass].bytes);
      CHECK(found[0].time.seconds[pass] == found[1].time.seconds[pass]);
      CHECK(found[1].time.cast_seconds[pass] == 0);
    }
    CHECK(found[0].op.saved_until_weight == found[1].op.saved_until_weight);
  };
  compare(BlockKind::kExpertLayer, "router");
  compare(BlockKind::kHead, "last norm");
  compare(BlockKind::kHead, "output head");
  compare(BlockKind::kMtpLayer, "prediction head");
}

TEST_CASE("cast: what each recipe adds", "[cost]") {
  const ModelOp op = Linear(8192, 4096, 16384);
  const double elements = 8192.0 * 16384;
  const auto cast = [&](const char* device, Precision precision,
                        bool after_norm = false) {
    TrainingSpec training;
    training.precision = precision;
    return CastSeconds(On(device), training, op, OpPass::kForward, after_norm);
  };
  // Bytes a value, read and written, in parts of the measured cast's 3.
  const double one = cast("b200", Precision::kFp8) / 3;
  CHECK(cast("b200", Precision::kFp8Tensorwise) / one ==
        Approx(3 + 2).epsilon(0.05));
  CHECK(cast("b200", Precision::kMxfp8) / one ==
        Approx(2 + 2 * (1 + 1.0 / 32)).epsilon(0.05));
  CHECK(cast("b200", Precision::kFp8Block) / one ==
        Approx(2 + 2 * (1 + 4.0 / 128)).epsilon(0.05));
  CHECK(cast("b200", Precision::kNvfp4) / one ==
        Approx(2 + 2 * (2 + 9.0 / 16)).epsilon(0.05));
  CHECK(cast("b200", Precision::kBf16) == 0);
  // A norm casts its output itself with a scale that it knows.
  CHECK(cast("b200", Precision::kFp8, true) == 0);
  for (const Precision precision :
       {Precision::kFp8Tensorwise, Precision::kMxfp8, Precision::kNvfp4}) {
    CHECK(cast("b200", precision, true) == cast("b200", precision));
  }
  // Casts inside measured products: one kernel, by its bytes.
  const AnalyticOptions options = On("b200");
  const double inside = options.silicon->Cast("static", elements)->seconds;
  CHECK(CastInside(options, "nvfp4", 1e12, elements) ==
        Approx(inside * (2 + 9.0 / 16) / 3));
  CHECK(CastInside(options, "fp8_block", 1e12, elements) ==
        Approx(inside * (3 + 4.0 / 128) / 3));
}

// PyTorch keeps operands in 8 bit: 5 bytes for each value of an input, of a
// weight and of a gradient, and 2 for each copy in the other order, weights
// included.
TEST_CASE("cast: PyTorch copies in the other order before B and W", "[cost]") {
  const ModelOp op = Linear(8192, 4096, 16384);
  const double inputs = 8192.0 * 16384;
  const double gradients = 8192.0 * 4096;
  const double weights = 4096.0 * 16384;
  TrainingSpec training;
  training.precision = Precision::kFp8Tensorwise;
  const auto cast = [&](const char* device, FrameworkKernels kernels,
                        OpPass pass) {
    AnalyticOptions options = On(device);
    options.kernels = kernels;
    return CastSeconds(options, training, op, pass, true);
  };
  constexpr auto kTorch = FrameworkKernels::kCompiled;
  // Seconds a byte, from a cast of 3 bytes a value.
  training.precision = Precision::kFp8;
  const double byte_s =
      cast("h100", kTorch, OpPass::kForward) / (3 * (inputs + weights));
  const double other_s =
      cast("b200", kTorch, OpPass::kForward) / (3 * (inputs + weights));
  CHECK(byte_s ==
        Approx(On("h100").silicon->Cast("static", inputs)->seconds / 3 / inputs)
            .epsilon(0.1));
  training.precision = Precision::kFp8Tensorwise;
  CHECK(cast("h100", kTorch, OpPass::kForward) ==
        Approx(byte_s * 5 * (inputs + weights)).epsilon(0.05));
  // Smaller casts run at a lower rate, by the table.
  CHECK(cast("h100", kTorch, OpPass::kBackwardInput) ==
        Approx(byte_s * (5 * gradients + 2 * weights)).epsilon(0.1));
  CHECK(cast("h100", kTorch, OpPass::kBackwardWeight) ==
        Approx(byte_s * 2 * (inputs + gradients)).epsilon(0.05));
  // It does so on every device.
  training.precision = Precision::kFp8;
  CHECK(cast("b200", kTorch, OpPass::kBackwardInput) ==
        Approx(other_s * (3 * gradients + 2 * weights)).epsilon(0.25));
  CHECK(cast("b200", kTorch, OpPass::kBackwardWeight) ==
        Approx(other_s * 2 * (inputs + gradients)).epsilon(0.15));
  training.precision = Precision::kFp8Tensorwise;
  CHECK(cast("h100", FrameworkKernels::kFused, OpPass::kBackwardWeight) == 0);
}

// Products of 8 bit have one table whatever the scales, those of 4 bit their
// own.
TEST_CASE("cast: products take the table of their type", "[cost]") {
  AnalyticOptions options = On("b200");
  options.sustained = false;
  const auto seconds = [&](Precision precision) {
    TrainingSpec training;
    training.precision = precision;
    const KernelEstimate estimate = EstimateKernel(
        options, training, true, Linear(8192, 8192, 8192), OpPass::kForward);
    CHECK(estimate.how == "silicon");
    return estimate.seconds;
  };
  const double fp8 = seconds(Precision::kFp8);
  CHECK(seconds(Precision::kFp8Tensorwise) == fp8);
  CHECK(seconds(Precision::kMxfp8) == fp8);
  CHECK(seconds(Precision::kNvfp4) < 0.75 * fp8);
  CHECK(seconds(Precision::kBf16) > 1.3 * fp8);
}

// Ten of 75 measurements (MooreThreads/SimuMax 4dcaae513ba7, Transformer
// Engine's grouped products on B200 under a lasting load): groups, rows of one,
// outputs, inputs, ms. None is fitted to but the shortest.
TEST_CASE("grouped: products of experts take what was measured", "[cost]") {
  struct Row {
    double groups, m, n, k, ms;
  };
  const std::vector<Row> rows = {
      {160, 154, 3072, 5120, 1.725173}, {160, 154, 5120, 1536, 1.487291},
      {20, 1232, 3072, 5120, 0.670981}, {32, 1024, 4096, 7168, 1.870829},
      {32, 1024, 7168, 2048, 1.112849}, {64, 512, 4096, 7168, 2.352673},
      {128, 256, 4096, 7168, 3.150511}, {256, 128, 4096, 7168, 4.109335},
      {256, 128, 7168, 2048, 2.399975}, {40, 2460, 3072, 5120, 2.826238}};
  const AnalyticOptions options = On("b200");
  const TrainingSpec training;
  std::vector<double> errors;
  for (const Row& row : rows) {
    ModelOp op;
    op.kind = OpClass::kGroupedGemm;
    op.m = row.m;
    op.n = row.n;
    op.k = row.k;
    op.count = row.groups;
    op.work[0] = {
        2 * row.groups * row.m * row.n * row.k,
        2 * row.groups * (row.m * row.n + row.n * row.k + row.m * row.k)};
    KernelEstimate estimate =
        EstimateKernel(options, training, true, op, OpPass::kForward);
    LowerClock(options.device, ClockUnder(options.device, {estimate.load}, 0),
               &estimate);
    const double seconds = estimate.seconds;
    INFO(row.groups << " x " << row.m << " x " << row.n << " x " << row.k
                    << ": " << seconds * 1e3);
    CHECK(std::abs(seconds / (row.ms * 1e-3) - 1) < 0.4);
    errors.push_back(std::abs(seconds / (row.ms * 1e-3) - 1));
    // One product of the same rows is faster: that was the estimate before.
    const double dense =
        DenseSeconds(options.device, training, op, OpPass::kForward);
    CHECK(dense < 0.8 * seconds);
  }
  std::sort(errors.begin(), errors.end());
  CHECK(errors[errors.size() / 2] < 0.15);
}

TEST_CASE("interval: of an estimate it is that of its kernels", "[cost]") {
  const ModelSpec* model = nullptr;
  for (const ModelSpec& each : AllModels()) {
    if (each.name == "llama3-8b") model = &each;
  }
  REQUIRE(model != nullptr);
  TrainingSpec training;
  training.sequence = 8192;
  const auto layout = EvenLayout(*model, training, 4, 1);
  REQUIRE(layout.ok());
  const auto half = [&](const AnalyticOptions& options) {
    const RatioInterval ratio =
        EstimateError(*model, training, options, *layout);
    CHECK(ratio.low > (1 - 1e-9) / ratio.high);
    return std::log(ratio.high);
  };
  AnalyticOptions options = On("h100");
  const double sustained = half(options);
  CHECK(sustained > 0.07);
  CHECK(sustained < 0.2);
  // The law of the clock adds to it, and more where it is carried over.
  options.sustained = false;
  CHECK(half(options) < sustained);
  CHECK(half(On("h100-96gb")) > sustained);
  CHECK(half(On("b200")) > sustained);
  // Pieces of a product may fill each other's ends: less, and never more.
  training.tp = 8;
  training.sequence_parallel = true;
  options.network = {8, 450e9, 50e9};
  const auto of = [&] {
    return EstimateError(*model, training, options, *layout);
  };
  const RatioInterval whole = of();
  training.execution.overlap_tensor = true;
  const RatioInterval cut = of();
  CHECK(std::log(cut.low) / std::log(whole.low) >
        1.05 * std::log(cut.high) / std::log(whole.high));
  CHECK(std::log(cut.high) < 1.1 * std::log(whole.high));
  training = TrainingSpec();
  training.sequence = 8192;
  // All products of one curve err together.
  AnalyticOptions curves = On("h100");
  curves.silicon = nullptr;
  CHECK(half(curves) > half(options));
  CHECK(half(curves) == Approx(std::hypot(0.10, 0.07, 0.12)).epsilon(0.02));
  // Collectives have a term of their own and no other one.
  training.tp = 8;
  training.sequence_parallel = true;
  curves.network = {8, 1e6, 1e6};
  CHECK(half(curves) == Approx(std::hypot(0.12, 0.12)).epsilon(0.01));
}

// An assumption errs for all kernels that it concerns, so its range does not
// average out.
TEST_CASE("interval: assumptions widen it where they are made", "[cost]") {
  const auto model = [](const char* name) {
    const ModelSpec* found = nullptr;
    for (const ModelSpec& each : AllModels()) {
      if (each.name == name) found = &each;
    }
    REQUIRE(found != nullptr);
    return *found;
  };
  const auto of = [&](const ModelSpec& spec, const char* device,
                      Precision precision) {
    TrainingSpec training;
    training.sequence = 4096;
    training.precision = precision;
    const auto layout = EvenLayout(spec, training, 4, 1);
    REQUIRE(layout.ok());
    return EstimateError(spec, training, On(device), *layout);
  };
  const ModelSpec dense = model("llama3-8b");
  // The energy of 16 bit is B200's own, of 8 bit carried from the H100, of 4
  // bit assumed; B300 is another chip.
  const double wide = std::log(of(dense, "b200", Precision::kBf16).high);
  const double eight = std::log(of(dense, "b200", Precision::kFp8).high);
  const double four = std::log(of(dense, "b200", Precision::kNvfp4).high);
  CHECK(wide < eight);
  CHECK(wide < four);
  CHECK(std::log(of(dense, "b300", Precision::kBf16).high) > wide);
  CHECK(std::log(of(dense, "b200", Precision::kMxfp8).high) > eight);
  // 4 bit: the peaks of B300 say less energy than the parts say more.
  const RatioInterval nvfp4 = of(dense, "b200", Precision::kNvfp4);
  CHECK(nvfp4.low < 0.85);
  CHECK(nvfp4.high < 1.5);
  // Experts: measured layers take less than the law of groups, and small
  // kernels that are not fused take 3.6 times. On Hopper groups were measured.
  const RatioInterval experts =
      of(model("qwen3-30b-a3b"), "b200", Precision::kBf16);
  CHECK(experts.low < of(dense, "b200", Precision::kBf16).low);
  CHECK(experts.high > of(dense, "b200", Precision::kBf16).high);
  const RatioInterval hopper =
      of(model("qwen3-30b-a3b"), "h100", Precision::kBf16);
  CHECK(std::log(hopper.high) > 0.2);
  CHECK(hopper.high < experts.high);
}

}  // namespace
}  // namespace pipewright::cast_time_test
