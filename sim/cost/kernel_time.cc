#include "sim/cost/kernel_time.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sim/model/precision.h"

namespace pipewright {
namespace {

// Shapes of output tiles that matrix kernels come in, and the part of the
// largest tile's rate that each reaches inside. Operands are read again more
// often per product the smaller the tile (128 x 64 reads half as much again as
// 256 x 128). NVIDIA, Matrix Multiplication Background User's Guide, section
// "Tile quantization" and figure 4, for the order and the trade; the rates are
// assumed. [assumption]
struct Tile {
  double rows, columns, rate;
};
constexpr Tile kTiles[] = {{256, 128, 1.0},  {128, 256, 1.0},  {192, 128, 0.98},
                           {128, 192, 0.98}, {128, 128, 0.95}, {128, 64, 0.80},
                           {64, 128, 0.80},  {64, 64, 0.65}};

// Inner products shorter than a few loads of a tile do not hide the filling
// of the pipeline and the store of the tile: rate k / (k + this). No source: it
// is assumed. [assumption]
constexpr double kInnerFill = 128;
// Split along k: parts at least this long, and at most so many. No source: both
// are assumed. [assumption]
constexpr double kShortestPart = 2048;
constexpr double kMostParts = 8;

// The part of attention's best rate at a length s is s / (s + fill): fitted
// by hand on cuDNN 9.19.1's ten lengths on H200 (NVIDIA/cudnn-frontend,
// benchmark csv h200_919_only_cudnn), off by at most 3.5 %. [kernel file]
struct Fill {
  double forward, backward;
};
constexpr Fill kCausalFill = {935, 1330};
constexpr Fill kFullFill = {250, 490};

double PeakFlops(const DeviceSpec& device, Precision precision) {
  if (precision == Precision::kNvfp4 && device.fp4_flops > 0) {
    return device.fp4_flops * device.fp8_sustained;
  }
  return IsNarrow(precision) && device.fp8_flops > 0
             ? device.fp8_flops * device.fp8_sustained
             : device.bf16_flops * device.bf16_sustained;
}

}  // namespace

double StreamSeconds(const DeviceSpec& device, double bytes) {
  return bytes / (device.hbm_bytes_per_s * device.hbm_sustained);
}

double GemmSeconds(const DeviceSpec& device, Precision precision, double m,
                   double n, double k, double count, double bytes) {
  if (m <= 0 || n <= 0 || k <= 0 || count <= 0) return 0;
  const double rate = PeakFlops(device, precision) / device.multiprocessors;
  double best = std::numeric_limits<double>::infinity();
  for (const Tile& tile : kTiles) {
    const double tiles =
        count * std::ceil(m / tile.rows) * std::ceil(n / tile.columns);
    // A long inner dimension may be cut, so that the last wave is full.
    const double most = std::max(1.0, std::floor(k / kShortestPart));
    for (double parts = 1; parts <= std::min(most, kMostParts); ++parts) {
      const double waves = std::ceil(tiles * parts / device.multiprocessors);
      const double flops =
          2 * tile.rows * tile.columns * (k / parts + kInnerFill);
      best = std::min(best, waves * flops / (rate * tile.rate));
    }
  }
  return std::max(best, StreamSeconds(device, bytes)) + kKernelGapSeconds;
}

double AttentionSeconds(const DeviceSpec& device, OpPass pass, bool causal,
                        double flops, double sequence) {
  if (flops <= 0) return 0;
  const Fill& fill = causal ? kCausalFill : kFullFill;
  const bool forward = pass == OpPass::kForward;
  const double best =
      forward ? device.attention_forward : device.attention_backward;
  const double part =
      sequence / (sequence + (forward ? fill.forward : fill.backward));
  return flops / (device.bf16_flops * best * part) + kKernelGapSeconds;
}

double GroupedTrafficPart(const DeviceSpec& device) {
  return device.architecture == "hopper" ? kHopperGroupedTraffic : 1;
}

double GroupedSeconds(const DeviceSpec& device, double bytes, double groups,
                      double dense_s) {
  return std::max(
      groups * kGroupSeconds,
      GroupedTrafficPart(device) * StreamSeconds(device, bytes) + dense_s);
}

double DenseSeconds(const DeviceSpec& device, const TrainingSpec& training,
                    const ModelOp& op, OpPass pass) {
  const Precision precision = PrecisionOf(training, op);
  // Groups count as one product of all rows; GroupedSeconds adds their traffic.
  const bool is_grouped = op.kind == OpClass::kGroupedGemm;
  const double rows = is_grouped ? op.m * op.count : op.m;
  const double count = is_grouped ? 1 : op.count;
  const double bytes = is_grouped ? 0 : op.Work(pass).bytes;
  // dX[m,k] = dY[m,n] W, dW[n,k] = dY^T[n,m] X.
  switch (pass) {
    case OpPass::kForward:
      return GemmSeconds(device, precision, rows, op.n, op.k, count, bytes);
    case OpPass::kBackwardInput:
      return GemmSeconds(device, precision, rows, op.k, op.n, count, bytes);
    case OpPass::kBackwardWeight:
      break;
  }
  return GemmSeconds(device, precision, op.n, op.k, rows, count, bytes);
}

double OpSeconds(const DeviceSpec& device, const TrainingSpec& training,
                 bool causal, const ModelOp& op, OpPass pass) {
  const OpWork& work = op.Work(pass);
  if (work.flops <= 0 && work.bytes <= 0) return 0;
  switch (op.kind) {
    case OpClass::kGroupedGemm:
      return GroupedSeconds(device, work.bytes, op.count,
                            DenseSeconds(device, training, op, pass));
    case OpClass::kGemm:
      return DenseSeconds(device, training, op, pass);
    case OpClass::kBatchedGemm: {
      // Two products forward, four backward, in 16 bit whatever the linear
      // layers use.
      const double products = pass == OpPass::kForward ? 2 : 4;
      return products * GemmSeconds(device, Precision::kBf16, op.m, op.n, op.k,
                                    op.count, work.bytes / products);
    }
    case OpClass::kAttention:
      // A window is a short sequence for each of its queries.
      return AttentionSeconds(device, pass, causal, work.flops,
                              op.window > 0 ? op.window : op.n);
    case OpClass::kScan:
      // As batched products of a chunk, each with the loss of its size; that or
      // the traffic counts.
      return GemmSeconds(device, Precision::kBf16, op.m, op.n, op.k,
                         work.flops / (2 * op.m * op.n * op.k), work.bytes) +
             (op.count - 1) * kKernelGapSeconds;
    case OpClass::kNorm:
    case OpClass::kElementwise:
    case OpClass::kLookup:
    case OpClass::kLoss:
    case OpClass::kRouting:
      return StreamSeconds(device, work.bytes) + kKernelGapSeconds;
  }
  return 0;
}

}  // namespace pipewright
