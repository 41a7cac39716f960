#include "sim/cost/framework_kernels.h"

#include "absl/strings/match.h"

namespace pipewright {
namespace {

struct Factor {
  double forward, backward;
};
// FlashAttention-2 over cuDNN: 3206 and 9453 us against 1711 and 5031 us
// (experiments/h100_load). [measured]
constexpr Factor kFlashAttention2 = {1.87, 1.88};
// 662 and 666 us against 112 us of their traffic (experiments/h100_load).
// [measured]
constexpr Factor kComplexRotary = {5.9, 5.9};
// Bytes a logit at the memory's lasting rate: 17.4 and 18.0 ms for 16384 x
// 128256 of them (experiments/h100_load). [measured, bytes]
constexpr Factor kWideCrossEntropy = {24.9, 25.7};
// What the inventory has on one device (LossBytesOf in sim/model/ops.cc). A
// loss in parallel has more, at the same rate. [framework source, bytes]
constexpr Factor kFusedLogit = {4, 4};
constexpr Factor kWideLogit = {18, 10};
constexpr Factor kPlainLogit = {22, 26};
// 1025 and 2376 us against 132 and 315 us (experiments/h100_load). [measured]
constexpr Factor kEagerNorm = {7.8, 7.5};
// Merges of PyTorch's ring kernel by kernel, over those of compiled code
// (sim/model/ops_attention.cc). In F a cast, two differences, a product and the
// sigmoid's copy are 38 bytes a value where 10 are needed. In B sums are copied
// into others and then joined, 50 bytes for 30. Counted. [framework source]
constexpr Factor kEagerMerges = {38.0 / 10, 50.0 / 30};
// 135 and 213 us for one of both tensors against 56 us of its traffic
// (experiments/h100_load). [measured]
constexpr Factor kEagerRepeats = {2.4, 3.8};

}  // namespace

double FrameworkFactor(FrameworkKernels kernels, const DeviceSpec& device,
                       bool is_rms, const TrainingSpec& training,
                       const ModelOp& op, OpPass pass) {
  if (kernels == FrameworkKernels::kFused) return 1;
  const auto of = [pass](const Factor& factor) {
    return pass == OpPass::kForward ? factor.forward : factor.backward;
  };
  switch (op.kind) {
    case OpClass::kAttention:
      return device.architecture == "hopper" ? of(kFlashAttention2) : 1;
    case OpClass::kLoss:
      return of(kWideCrossEntropy) /
             of(training.fused_cross_entropy   ? kFusedLogit
                : training.plain_cross_entropy ? kPlainLogit
                                               : kWideLogit);
    case OpClass::kNorm:
      return kernels == FrameworkKernels::kEager && is_rms ? of(kEagerNorm) : 1;
    case OpClass::kElementwise:
      if (op.name == kContextMerges || op.name == kRepeatedKeys) {
        return kernels != FrameworkKernels::kEager
                   ? 1
                   : of(op.name == kContextMerges ? kEagerMerges
                                                  : kEagerRepeats);
      }
      return absl::StrContains(op.name, "rotary") ? of(kComplexRotary) : 1;
    default:
      return 1;
  }
}

}  // namespace pipewright
