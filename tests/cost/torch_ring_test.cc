// PyTorch's ring of context parallelism, and what unbalanced halves cost, by
// hand arithmetic.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "absl/strings/match.h"
#include "sim/cost/analytic.h"
#include "sim/cost/estimate_error.h"
#include "sim/cost/exchange.h"
#include "sim/cost/host_time.h"
#include "sim/model/stages.h"

namespace pipewright::torch_ring_test {
namespace {

constexpr int kMembers = 4;
constexpr double kTokens = 2048;  // of a device
// 32 query heads and 8 of keys and values, of 128.
constexpr double kValues = kTokens * 32 * 128;
constexpr double kOwnKeys = 2 * 2 * kTokens * 8 * 128;

TrainingSpec Training(ContextExchange context) {
  TrainingSpec training;
  training.cp = kMembers;
  training.sequence = kMembers * 2048;
  training.execution.context = context;
  return training;
}

std::vector<ModelOp> Ops(const TrainingSpec& training) {
  return BlockOps(*FindModel("llama3-8b"), training, BlockKind::kDenseLayer);
}

const ModelOp& Named(const std::vector<ModelOp>& ops, const char* name) {
  for (const ModelOp& op : ops) {
    if (op.name == name) return op;
  }
  FAIL(name);
  return ops.front();
}

AnalyticOptions Options(FrameworkKernels kernels) {
  AnalyticOptions options;
  options.device = *FindDevice("h100");
  options.network = {8, 450e9, 50e9};
  options.kernels = kernels;
  return options;
}

// The time of one op of a layer.
OpTime TimeOf(const TrainingSpec& training, const AnalyticOptions& options,
              const char* name) {
  for (const OpTime& time : BlockTimes(*FindModel("llama3-8b"), training,
                                       options, BlockKind::kDenseLayer, 0)) {
    if (time.name == name) return time;
  }
  FAIL(name);
  return {};
}

TEST_CASE("torch ring: exchanges are counted", "[cost]") {
  const auto gathered = Ops(Training(ContextExchange::kTorchGather));
  const std::vector<OpComm>& comms = Named(gathered, "attention").comms;
  REQUIRE(comms.size() == 4);
  for (const int index : {0, 1}) {
    CHECK(comms[index].kind == CommKind::kAllGather);
    CHECK(comms[index].bytes == kMembers * kOwnKeys);
    CHECK(comms[index].beside_part == 1.0 / kMembers);
  }
  // Gradients in fp32, as often as there are members; the last ones alone.
  CHECK(comms[2].bytes == 2 * kOwnKeys);
  CHECK(comms[2].overlaps);
  CHECK(comms[2].beside_part == 1 - 1.0 / kMembers);
  CHECK_FALSE(comms[3].overlaps);
  CHECK((kMembers - 1) * (comms[2].bytes + comms[3].bytes) ==
        Approx(kMembers * 2 * kOwnKeys));
  const auto rotated = Ops(Training(ContextExchange::kTorchRotate));
  CHECK(Named(rotated, "attention").comms[0].kind == CommKind::kRing);
  CHECK(Named(rotated, "attention").comms[0].bytes == kOwnKeys);
  CHECK(Named(rotated, "attention").comms[0].beside_part == 1 - 1.0 / kMembers);
  // Copies of keys and values for each query head go round as they are.
  TrainingSpec repeats = Training(ContextExchange::kTorchRotate);
  repeats.execution.repeats_keys = true;
  const auto copied = Ops(repeats);
  CHECK(Named(copied, "attention").comms[0].bytes == 4 * kOwnKeys);
  // Read once, written four times.
  CHECK(Named(copied, kRepeatedKeys).Work(OpPass::kForward).bytes ==
        5 * kOwnKeys);
  CHECK(Named(copied, "attention").attention_inputs ==
        2 * kValues + 4 * kOwnKeys);
}

TEST_CASE("torch ring: merges are in fp32", "[cost]") {
  const auto ops = Ops(Training(ContextExchange::kTorchGather));
  const ModelOp& merges = Named(ops, kContextMerges);
  // Three merges read 4 + 2 bytes and write 4; the first read and the last cast
  // take 2. Keys and values are laid out for the exchange.
  CHECK(merges.Work(OpPass::kForward).bytes ==
        Approx(2 * kOwnKeys + kValues * (3 * 10 + 2)));
  // Sums of gradients of queries, and of keys and values, in four steps, and a
  // cast.
  CHECK(merges.Work(OpPass::kBackwardInput).bytes ==
        Approx(2 * kOwnKeys + (kValues + kOwnKeys / 2) * (4 * 10 + 6)));
  const auto ring = Ops(Training(ContextExchange::kRing));
  for (const ModelOp& op : ring) CHECK(op.name != kContextMerges);
  // Eager code takes 38 bytes for 10 and 50 for 30.
  const TrainingSpec training = Training(ContextExchange::kTorchGather);
  const auto seconds = [&](FrameworkKernels kernels, int pass) {
    return TimeOf(training, Options(kernels), kContextMerges).seconds[pass];
  };
  CHECK(seconds(FrameworkKernels::kEager, 0) ==
        Approx(3.8 * seconds(FrameworkKernels::kCompiled, 0)).epsilon(0.01));
  CHECK(
      seconds(FrameworkKernels::kEager, 1) ==
      Approx(5.0 / 3 * seconds(FrameworkKernels::kCompiled, 1)).epsilon(0.01));
  // Four kernels for each part.
  CHECK(HostLaunches(Options(FrameworkKernels::kEager), training, merges,
                     OpPass::kForward) == Approx(1.6 * 4 * kMembers));
}

TEST_CASE("torch ring: compiled code waits where an exchange begins",
          "[cost]") {
  const TrainingSpec training = Training(ContextExchange::kTorchGather);
  const AnalyticOptions compiled = Options(FrameworkKernels::kCompiled);
  const auto ops = Ops(training);
  const std::vector<OpComm>& comms = Named(ops, "attention").comms;
  double forward_s = 0;
  double backward_s = 0;
  for (const OpComm& comm : comms) {
    (comm.pass == OpPass::kForward ? forward_s : backward_s) +=
        CommSeconds(compiled, training, comm);
  }
  const OpTime waits = TimeOf(training, compiled, "attention");
  CHECK(waits.comm_seconds[0] == Approx(forward_s));
  CHECK(waits.comm_seconds[1] == Approx(backward_s));
  // Eager code hides a gather behind the first part alone.
  AnalyticOptions eager = Options(FrameworkKernels::kEager);
  eager.network.nvlink_bytes_per_s = 45e9;
  const OpTime beside = TimeOf(training, eager, "attention");
  const double gather_s = CommSeconds(eager, training, comms[0]);
  REQUIRE(gather_s > beside.kernel_seconds[0] / kMembers);
  CHECK(beside.comm_seconds[0] ==
        Approx(gather_s - beside.kernel_seconds[0] / kMembers));
  // Engines that share links see as much alone.
  const auto exchanges = ExchangesOf(eager, training, Named(ops, "attention"),
                                     beside, OpPass::kForward);
  REQUIRE(exchanges.size() == 2);
  CHECK_FALSE(exchanges[0].is_beside);
  CHECK(exchanges[0].seconds == Approx(beside.comm_seconds[0]));
}

TEST_CASE("torch ring: out of balance all wait for the last part", "[cost]") {
  TrainingSpec training = Training(ContextExchange::kRing);
  const double balanced =
      Named(Ops(training), "attention").Work(OpPass::kForward).flops;
  training.execution.context_balanced = false;
  // Of four parts the last one meets three and a half, not two.
  CHECK(Named(Ops(training), "attention").Work(OpPass::kForward).flops ==
        Approx(balanced * 3.5 / 2));
  training.cp = 1;
  training.sequence = 2048;
  const double whole =
      Named(Ops(training), "attention").Work(OpPass::kForward).flops;
  training.execution.context_balanced = true;
  CHECK(Named(Ops(training), "attention").Work(OpPass::kForward).flops ==
        whole);
}

TEST_CASE("torch ring: the interval says what is not known", "[cost]") {
  const ModelSpec model = *FindModel("llama3-8b");
  const AnalyticOptions options = Options(FrameworkKernels::kCompiled);
  const auto interval = [&](const TrainingSpec& training) {
    return EstimateError(model, training, options,
                         *EvenLayout(model, training, 1, 1));
  };
  const RatioInterval own = interval(Training(ContextExchange::kTorchGather));
  CHECK(absl::StrContains(own.note, "PyTorch's ring"));
  const RatioInterval ring = interval(Training(ContextExchange::kRing));
  CHECK(ring.note.empty());
  CHECK(own.high == Approx(ring.high).epsilon(0.02));
  // What FlashAttention-2 draws is not known either.
  AnalyticOptions fused = Options(FrameworkKernels::kFused);
  const TrainingSpec plain = Training(ContextExchange::kRing);
  const RatioInterval cudnn =
      EstimateError(model, plain, fused, *EvenLayout(model, plain, 1, 1));
  CHECK(ring.high / ring.low > cudnn.high / cudnn.low);
}

}  // namespace
}  // namespace pipewright::torch_ring_test
