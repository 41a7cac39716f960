#include "sim/cost/cast_time.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/kernel_time.h"
#include "sim/cost/silicon.h"
#include "sim/model/precision.h"

namespace pipewright {
namespace {

// Bytes of a value in bf16. [numerics, bytes]
constexpr double kWideBytes = 2;
// Read and written for each value by the measured cast: bf16 to fp8.
// [numerics, bytes]
constexpr double kMeasuredBytes = 3;
// Above it the table of products has one campaign (calibrate/silicon/distil.py,
// UNFILLED_FLOP). [kernel file, FLOP]
constexpr double kOneCampaignFlop = 3e12;

// A kernel that casts and moves so many bytes.
double CastOfBytes(const AnalyticOptions& options, double bytes) {
  if (bytes <= 0) return 0;
  if (options.silicon != nullptr) {
    if (const auto time =
            options.silicon->Cast("static", bytes / kMeasuredBytes)) {
      return time->seconds * options.silicon->device().hbm_bytes_per_s /
                 options.device.hbm_bytes_per_s +
             kKernelGapSeconds;
    }
  }
  return StreamSeconds(options.device, bytes) + kKernelGapSeconds;
}

// What a recipe does to a tensor that a product takes.
struct Recipe {
  double searches = 0;  // passes that read it for its largest value
  double casts = 1;     // kernels that read it and write operands
  double written = 1;   // bytes of a value
  bool norm_casts = false;
};

// Transformer Engine 2 (transformer_engine/pytorch/tensor, common/cast): one
// kernel casts along both dimensions; a norm casts its output itself with
// delayed scaling alone, as all other scales depend on what it has made. Of
// nvfp4 one pass finds the largest values, of the tensor and of its rotated
// transpose, and each of both copies has a kernel of its own.
Recipe RecipeOf(Precision precision, bool for_weight, bool transposes) {
  const double one = OperandBytes(precision);
  const double both = for_weight ? 2 * one : one;
  switch (precision) {
    case Precision::kBf16:
      break;
    case Precision::kFp8:
      return {.written = transposes ? both : one, .norm_casts = true};
    case Precision::kFp8Tensorwise:
      return {.searches = 1, .written = transposes ? both : one};
    case Precision::kFp8Block:
    case Precision::kMxfp8:
      return {.written = both};
    case Precision::kNvfp4:
      return {.searches = 1, .casts = for_weight ? 2.0 : 1.0, .written = both};
  }
  return {.casts = 0, .written = 0};
}

// PyTorch's float8 (pytorch/ao, float8_linear.py and float8_ops.py), one scale
// a tensor: operands are kept in 8 bit, so backward casts its gradient alone.
// Its products take the inner dimension first on every device: it copies
// weight, gradient and input in the other order, in 8 bit. A norm never casts.
// Each forward casts its weight, which is gathered in 16 bit or more.
double TorchCastSeconds(const AnalyticOptions& options, const ModelOp& op,
                        OpPass pass, bool searches) {
  const double inputs = op.m * op.count * op.k;
  const double gradients = op.m * op.count * op.n;
  const double weights = op.k * op.n * op.count;
  const auto cast = [&](double elements) {
    return (searches ? CastOfBytes(options, elements * kWideBytes) : 0) +
           CastOfBytes(options, elements * (kWideBytes + 1));
  };
  const auto copy = [&](double elements) {
    return CastOfBytes(options, elements * 2);
  };
  switch (pass) {
    case OpPass::kForward:
      return cast(inputs) + cast(weights);
    case OpPass::kBackwardInput:
      return cast(gradients) + copy(weights);
    case OpPass::kBackwardWeight:
      return copy(gradients) + copy(inputs);
  }
  return 0;
}

}  // namespace

double CastSeconds(const AnalyticOptions& options, const TrainingSpec& training,
                   const ModelOp& op, OpPass pass, bool after_norm) {
  const bool is_linear =
      op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
  const Precision precision = PrecisionOf(training, op);
  if (!is_linear || !IsNarrow(precision) || op.Work(pass).flops <= 0) return 0;
  const bool searches = precision == Precision::kFp8Tensorwise;
  if (options.kernels != FrameworkKernels::kFused &&
      (searches || precision == Precision::kFp8)) {
    return TorchCastSeconds(options, op, pass, searches);
  }
  if (pass == OpPass::kBackwardWeight) return 0;
  const bool transposes = options.device.architecture != "blackwell";
  const Recipe recipe = RecipeOf(precision, op.has_weight_pass, transposes);
  const bool is_forward = pass == OpPass::kForward;
  const double elements = op.m * op.count * (is_forward ? op.k : op.n);
  if (is_forward && after_norm && recipe.norm_casts) {
    // The norm has written 16 bit (its own time); the rest is more.
    return CastOfBytes(options,
                       elements * std::max(0.0, recipe.written - kWideBytes));
  }
  double seconds = 0;
  for (int search = 0; search < recipe.searches; ++search) {
    seconds += CastOfBytes(options, elements * kWideBytes);
  }
  for (int cast = 0; cast < recipe.casts; ++cast) {
    seconds += CastOfBytes(
        options, elements * (kWideBytes + recipe.written / recipe.casts));
  }
  return seconds;
}

double CastInside(const AnalyticOptions& options, const std::string& type,
                  double flops, double elements) {
  if (type == "bfloat16" || options.silicon == nullptr) return 0;
  const Silicon& silicon = *options.silicon;
  if (type != "fp8") {
    // One kernel reads the values and writes operands and scales.
    const auto cast = silicon.Cast("static", elements);
    const Precision precision =
        type == "nvfp4" ? Precision::kNvfp4 : Precision::kFp8Block;
    return cast ? cast->seconds * (kWideBytes + OperandBytes(precision)) /
                      kMeasuredBytes
                : 0;
  }
  const auto tensor = silicon.Cast("tensor", elements);
  const auto token = silicon.Cast("token", elements);
  if (!tensor || !token) return 0;
  return flops > kOneCampaignFlop ? tensor->seconds
                                  : std::sqrt(tensor->seconds * token->seconds);
}

}  // namespace pipewright
