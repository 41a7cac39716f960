// Kernels of a framework that does not fuse, against what was measured.
#include "sim/cost/framework_kernels.h"

#include <catch2/catch.hpp>

#include <map>
#include <string>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "sim/base/file.h"
#include "sim/cost/analytic.h"
#include "sim/cost/kernel_time.h"
#include "sim/cost/op_time.h"
#include "sim/cost/silicon.h"
#include "sim/model/model.h"
#include "tests/support/paths.h"

namespace pipewright::framework_kernels_test {
namespace {

// Microseconds of the rows `short` of experiments/h100_load/mixtures.csv, by
// name and size.
std::map<std::string, double> MeasuredShort() {
  const auto text =
      ReadFile(testing::SourcePath("experiments/h100_load/mixtures.csv"),
               InputKind::kProfile);
  REQUIRE(text.ok());
  std::map<std::string, double> times;
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<std::string> cells = absl::StrSplit(line, ',');
    if (cells[0] != "short") continue;
    double us = 0;
    REQUIRE(absl::SimpleAtod(cells[7], &us));
    times[absl::StrCat(cells[1], " ", cells[3])] = us;
  }
  return times;
}

double Factor(FrameworkKernels kernels, OpClass kind, const char* name,
              OpPass pass, const char* device = "h100") {
  ModelOp op;
  op.kind = kind;
  op.name = name;
  return FrameworkFactor(kernels, *FindDevice(device), true, {}, op, pass);
}

TEST_CASE("framework: factors are those that were measured", "[cost]") {
  using enum FrameworkKernels;
  using enum OpPass;
  const std::map<std::string, double> us = MeasuredShort();
  CHECK(Factor(kCompiled, OpClass::kAttention, "attention", kForward) ==
        Approx(us.at("sdpa flash forward 8192") /
               us.at("sdpa cudnn forward 8192"))
            .epsilon(0.01));
  CHECK(Factor(kCompiled, OpClass::kAttention, "attention", kBackwardInput) ==
        Approx(us.at("sdpa flash backward 8192") /
               us.at("sdpa cudnn backward 8192"))
            .epsilon(0.01));
  // Shorter sequences keep within 5 % of it.
  CHECK(us.at("sdpa flash forward 2048") / us.at("sdpa cudnn forward 2048") ==
        Approx(1.87).epsilon(0.05));
  CHECK(Factor(kEager, OpClass::kNorm, "attention norm", kForward) ==
        Approx(us.at("rms_norm eager forward 0") /
               us.at("rms_norm fused forward 0"))
            .epsilon(0.01));
  CHECK(Factor(kEager, OpClass::kNorm, "attention norm", kBackwardInput) ==
        Approx(us.at("rms_norm eager backward 0") /
               us.at("rms_norm fused backward 0"))
            .epsilon(0.01));
  // Against the estimate of the same elements: 16384 x 40 heads of 128, read
  // and written in 16 bit; 16384 x 128256 words, 4 bytes each.
  const DeviceSpec h100 = *FindDevice("h100");
  const double rotary_s =
      StreamSeconds(h100, 4.0 * 16384 * 40 * 128) + kKernelGapSeconds;
  const double loss_s =
      StreamSeconds(h100, 4.0 * 16384 * 128256) + kKernelGapSeconds;
  CHECK(
      Factor(kCompiled, OpClass::kElementwise, "rotary embedding", kForward) ==
      Approx(1e-6 * us.at("rotary complex forward 0") / rotary_s)
          .epsilon(0.03));
  CHECK(Factor(kCompiled, OpClass::kLoss, "loss", kForward) ==
        Approx(1e-6 * us.at("cross_entropy fp32 forward 0") / loss_s)
            .epsilon(0.03));
  CHECK(Factor(kCompiled, OpClass::kLoss, "loss", kBackwardInput) ==
        Approx(1e-6 * us.at("cross_entropy fp32 backward 0") / loss_s)
            .epsilon(0.03));
}

TEST_CASE("framework: what stays as it is", "[cost]") {
  using enum FrameworkKernels;
  using enum OpPass;
  for (const OpClass kind :
       {OpClass::kGemm, OpClass::kAttention, OpClass::kNorm, OpClass::kLoss,
        OpClass::kElementwise, OpClass::kLookup}) {
    CHECK(Factor(kFused, kind, "rotary embedding", kForward) == 1);
  }
  CHECK(Factor(kCompiled, OpClass::kNorm, "last norm", kForward) == 1);
  CHECK(Factor(kEager, OpClass::kGemm, "up", kForward) == 1);
  CHECK(Factor(kEager, OpClass::kElementwise, "activation", kForward) == 1);
  // FlashAttention-2 fills an A100, whose curves are of it.
  CHECK(Factor(kEager, OpClass::kAttention, "attention", kForward,
               "a100-80gb") == 1);
  CHECK(Factor(kEager, OpClass::kAttention, "attention", kForward, "h200") >
        1.5);
}

TEST_CASE("framework: norms and losses that are no others", "[cost]") {
  using enum FrameworkKernels;
  using enum OpPass;
  const DeviceSpec h100 = *FindDevice("h100");
  ModelOp op;
  op.kind = OpClass::kNorm;
  // A layer norm is one kernel in PyTorch, too.
  CHECK(FrameworkFactor(kEager, h100, false, {}, op, kForward) == 1);
  // The inventory's bytes of an unfused cross-entropy are 18 and 10 a logit, of
  // PyTorch's 22 and 26, not 4: the time is the same.
  TrainingSpec wide;
  wide.fused_cross_entropy = false;
  TrainingSpec plain = wide;
  plain.plain_cross_entropy = true;
  op.kind = OpClass::kLoss;
  const auto factor = [&](const TrainingSpec& training, OpPass pass) {
    return FrameworkFactor(kEager, h100, true, training, op, pass);
  };
  CHECK(18 * factor(wide, kForward) == Approx(4 * factor({}, kForward)));
  CHECK(10 * factor(wide, kBackwardInput) ==
        Approx(4 * factor({}, kBackwardInput)));
  CHECK(22 * factor(plain, kForward) == Approx(4 * factor({}, kForward)));
  CHECK(26 * factor(plain, kBackwardInput) ==
        Approx(4 * factor({}, kBackwardInput)));
}

// Estimated seconds of a whole model's operations against what ran: here the
// tables and the inventory are on one side, PyTorch on the other.
TEST_CASE("framework: operations of llama3-8b take what PyTorch took",
          "[cost]") {
  const std::map<std::string, double> us = MeasuredShort();
  const ModelSpec* model = nullptr;
  for (const ModelSpec& each : AllModels()) {
    if (each.name == "llama3-8b") model = &each;
  }
  REQUIRE(model != nullptr);
  TrainingSpec training;
  training.sequence = 8192;
  training.microbatch_size = 2;
  AnalyticOptions options = {.device = *FindDevice("h100"),
                             .silicon = Silicon::Shipped("h100"),
                             .sustained = false,
                             .kernels = FrameworkKernels::kEager};
  const auto seconds = [&](BlockKind kind, const char* name, int pass) {
    for (const OpTime& time : BlockTimes(*model, training, options, kind, 0)) {
      if (time.name == name) return time.seconds[pass];
    }
    FAIL(name);
    return 0.0;
  };
  const auto check = [&](BlockKind kind, const char* name, int pass,
                         const char* row) {
    INFO(row << ": " << 1e6 * seconds(kind, name, pass) << " against "
             << us.at(row));
    CHECK(1e6 * seconds(kind, name, pass) / us.at(row) ==
          Approx(1).epsilon(0.25));
  };
  for (const bool fused : {true, false}) {
    training.fused_cross_entropy = fused;
    check(BlockKind::kHead, "loss", 0, "cross_entropy fp32 forward 0");
    check(BlockKind::kHead, "loss", 1, "cross_entropy fp32 backward 0");
  }
  check(BlockKind::kDenseLayer, "rotary embedding", 0,
        "rotary complex forward 0");
  check(BlockKind::kDenseLayer, "rotary embedding", 1,
        "rotary complex backward 0");
  check(BlockKind::kDenseLayer, "attention norm", 0,
        "rms_norm eager forward 0");
  check(BlockKind::kDenseLayer, "attention norm", 1,
        "rms_norm eager backward 0");
  check(BlockKind::kDenseLayer, "attention", 0, "sdpa flash forward 8192");
  check(BlockKind::kDenseLayer, "attention", 1, "sdpa flash backward 8192");
}

TEST_CASE("framework: a longer kernel says so, and draws less", "[cost]") {
  const TrainingSpec training;
  AnalyticOptions options = {.device = *FindDevice("h100"),
                             .silicon = Silicon::Shipped("h100")};
  ModelOp op;
  op.kind = OpClass::kAttention;
  op.n = 8192;
  op.k = 128;
  op.work[0] = {.flops = 5e11, .bytes = 1e8};
  const auto estimate = [&] {
    return EstimateKernel(options, training, true, op, OpPass::kForward);
  };
  for (const bool has_tables : {true, false}) {
    if (!has_tables) options.silicon = nullptr;
    options.kernels = FrameworkKernels::kFused;
    const KernelEstimate fused = estimate();
    options.kernels = FrameworkKernels::kCompiled;
    const KernelEstimate longer = estimate();
    CHECK(longer.seconds == Approx(1.87 * fused.seconds));
    CHECK(longer.how == fused.how + ", framework");
    const double joules = fused.load.clocked_joules + fused.load.steady_joules;
    CHECK(joules > 0);
    CHECK(longer.load.clocked_joules + longer.load.steady_joules == joules);
  }
}

}  // namespace
}  // namespace pipewright::framework_kernels_test
