#include "sim/cost/cast_time.h"

#include <algorithm>
#include <cmath>

#include "sim/cost/kernel_time.h"
#include "sim/cost/silicon.h"

namespace pipewright {
namespace {

constexpr double kWideBytes = 2;
constexpr double kNarrowBytes = 1;
// Read and written for each value by the measured cast.
constexpr double kMeasuredBytes = 3;
// Above it the table of products has one campaign (UNFILLED_FLOP there).
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

}  // namespace

double CastSeconds(const AnalyticOptions& options, const TrainingSpec& training,
                   const ModelOp& op, OpPass pass, bool after_norm) {
  const bool is_linear =
      op.kind == OpClass::kGemm || op.kind == OpClass::kGroupedGemm;
  if (!is_linear || training.precision != Precision::kFp8 ||
      op.Work(pass).flops <= 0 || pass == OpPass::kBackwardWeight) {
    return 0;
  }
  const bool transposes = options.device.architecture != "blackwell";
  const double copies = op.has_weight_pass && transposes ? 2 : 1;
  const bool is_forward = pass == OpPass::kForward;
  const double elements = op.m * op.count * (is_forward ? op.k : op.n);
  const double written = copies * kNarrowBytes;
  if (is_forward && after_norm) {
    // The norm has written 16 bit (its own time); the rest is more.
    return CastOfBytes(options, elements * std::max(0.0, written - kWideBytes));
  }
  return CastOfBytes(options, elements * (kWideBytes + written));
}

double CastInside(const AnalyticOptions& options, const std::string& type,
                  double flops, double elements) {
  if (type != "fp8" || options.silicon == nullptr) return 0;
  const Silicon& silicon = *options.silicon;
  const auto tensor = silicon.Cast("tensor", elements);
  const auto token = silicon.Cast("token", elements);
  if (!tensor || !token) return 0;
  return flops > kOneCampaignFlop ? tensor->seconds
                                  : std::sqrt(tensor->seconds * token->seconds);
}

}  // namespace pipewright
