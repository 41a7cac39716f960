#include "sim/cost/op_time.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "sim/cost/cast_time.h"
#include "sim/cost/clock.h"
#include "sim/cost/silicon.h"

namespace pipewright {
namespace {

// What the law of the clock was fitted on.
constexpr char kFittedDevice[] = "b200";
constexpr char kFittedType[] = "bfloat16";

struct Product {
  double m, n, k;
  const char* layout;
};

// dX[m,k] = dY[m,n] W, dW[n,k] = dY^T[n,m] X.
Product ProductOf(const ModelOp& op, OpPass pass) {
  switch (pass) {
    case OpPass::kForward:
      return {op.m, op.n, op.k, "TN"};
    case OpPass::kBackwardInput:
      return {op.m, op.k, op.n, "NN"};
    case OpPass::kBackwardWeight:
      break;
  }
  return {op.n, op.k, op.m, "NT"};
}

// The table of a precision's products. Those of 8 bit with a scale for 32 values
// take that of one scale a tensor: the same units of the device multiply, and
// apply the scales besides.
const char* ProductType(Precision precision) {
  switch (precision) {
    case Precision::kBf16:
      return "bfloat16";
    case Precision::kFp8:
    case Precision::kFp8Tensorwise:
    case Precision::kMxfp8:
      return "fp8";
    case Precision::kFp8Block:
      return "fp8_block";
    case Precision::kNvfp4:
      return "nvfp4";
  }
  return "bfloat16";
}

// Half of the 90 % interval of GroupedSeconds on what it was compared with.
constexpr double kGroupedError = 0.24;

// A burst time under the clock of the options.
KernelEstimate UnderClock(const AnalyticOptions& options,
                          const std::string& type, double flops,
                          const SiliconTime& burst) {
  KernelEstimate out = {
      .seconds = burst.seconds, .error = burst.error, .how = "silicon"};
  if (options.sustained) {
    const double clock =
        LastingClock(options.device, type, flops / burst.seconds);
    out.seconds /= clock;
    if (clock < 1) {
      out.error = std::hypot(out.error, kClockError);
      if (options.device.name != kFittedDevice || type != kFittedType) {
        absl::StrAppend(&out.how, ", clock transferred");
      }
    }
  }
  if (!burst.is_inside) absl::StrAppend(&out.how, ", outside");
  return out;
}

// From the device of the tables to that of the options, by the curves.
void Transfer(double here_s, double there_s, SiliconTime* time) {
  time->seconds *= here_s / there_s;
}

// The least that is left of a measured product without the cast inside: both
// are measured, so their difference is noisy where products are small.
constexpr double kLeastBare = 0.5;

// Of a group all rows as one product.
std::optional<KernelEstimate> MeasuredProduct(const AnalyticOptions& options,
                                              Precision precision,
                                              const ModelOp& op, OpPass pass) {
  ModelOp whole;
  whole.m = op.m * op.count;
  whole.n = op.n;
  whole.k = op.k;
  const Product product = ProductOf(whole, pass);
  const bool is_grouped = op.kind == OpClass::kGroupedGemm;
  if (product.m < 1 || product.n < 1 || product.k < 1 ||
      (op.count != 1 && !is_grouped)) {
    return {};
  }
  const std::string type = ProductType(precision);
  std::optional<SiliconTime> time = options.silicon->Product(
      type, product.layout, product.m, product.n, product.k);
  if (!time) return {};
  const double flops = 2 * product.m * product.n * product.k;
  const double cast_s = CastInside(options, type, flops, product.m * product.k);
  time->seconds = std::max(kLeastBare * time->seconds, time->seconds - cast_s);
  const auto curve = [&](const DeviceSpec& device) {
    return GemmSeconds(device, precision, product.m, product.n, product.k, 1,
                       op.Work(pass).bytes);
  };
  Transfer(curve(options.device), curve(options.silicon->device()), &*time);
  KernelEstimate out = UnderClock(options, type, flops, *time);
  if (is_grouped) {
    out.seconds = GroupedSeconds(options.device, op.Work(pass).bytes, op.count,
                                 out.seconds);
    out.error = std::hypot(out.error, kGroupedError);
    absl::StrAppend(&out.how, ", grouped");
  }
  return out;
}

std::optional<KernelEstimate> MeasuredAttention(const AnalyticOptions& options,
                                                bool causal, const ModelOp& op,
                                                OpPass pass) {
  const double flops = op.Work(pass).flops;
  if (flops <= 0 || op.n < 1 || op.k < 1) return {};
  const bool forward = pass == OpPass::kForward;
  // Sequences times heads that make the FLOPs of a whole sequence; slices and
  // parts of one count by their work.
  const double heads = flops / (4 * op.n * op.n * op.k * (causal ? 0.5 : 1) *
                                (forward ? 1 : 2.5));
  std::optional<SiliconTime> time =
      options.silicon->Attention(forward, causal, op.k, heads, op.n);
  if (!time) return {};
  const auto curve = [&](const DeviceSpec& device) {
    return AttentionSeconds(device, pass, causal, flops, op.n);
  };
  Transfer(curve(options.device), curve(options.silicon->device()), &*time);
  return UnderClock(options, kFittedType, flops, *time);
}

std::optional<KernelEstimate> MeasuredNorm(const AnalyticOptions& options,
                                           const ModelOp& op, OpPass pass) {
  const double bytes = op.Work(pass).bytes;
  std::optional<SiliconTime> time =
      options.silicon->Norm(pass == OpPass::kForward, bytes);
  if (!time) return {};
  Transfer(StreamSeconds(options.device, bytes),
           StreamSeconds(options.silicon->device(), bytes), &*time);
  // Measured without the boundary between kernels.
  time->seconds += kKernelGapSeconds;
  return KernelEstimate{
      .seconds = time->seconds,
      .error = time->error,
      .how = time->is_inside ? "silicon" : "silicon, outside"};
}

std::optional<KernelEstimate> Measured(const AnalyticOptions& options,
                                       const TrainingSpec& training,
                                       bool causal, const ModelOp& op,
                                       OpPass pass) {
  const OpWork& work = op.Work(pass);
  if (options.silicon == nullptr || (work.flops <= 0 && work.bytes <= 0)) {
    return {};
  }
  switch (op.kind) {
    case OpClass::kGemm:
    case OpClass::kGroupedGemm:
      return MeasuredProduct(options, training.precision, op, pass);
    case OpClass::kAttention:
      return MeasuredAttention(options, causal, op, pass);
    case OpClass::kNorm:
      return MeasuredNorm(options, op, pass);
    default:
      return {};
  }
}

}  // namespace

KernelEstimate EstimateKernel(const AnalyticOptions& options,
                              const TrainingSpec& training, bool causal,
                              const ModelOp& op, OpPass pass) {
  if (auto measured = Measured(options, training, causal, op, pass)) {
    return *std::move(measured);
  }
  return {.seconds = OpSeconds(options.device, training, causal, op, pass),
          .how = "curve"};
}

}  // namespace pipewright
