// The time of one pass of one operation on a device that is not at hand: of a
// table of measured rates where one is taken and has the kernel, else of the
// efficiency curves (kernel_time.h).
#pragma once

#include <string>

#include "sim/cost/analytic.h"
#include "sim/cost/clock.h"
#include "sim/cost/kernel_time.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

struct KernelEstimate {
  double seconds = 0;  // for a short run
  // Half of a 90 % interval, as a part of the time; 0: not known.
  double error = 0;
  // "curve"; "silicon"; ", outside" behind it beyond the measured sizes;
  // ", grouped" behind products of experts (GroupedSeconds), ", fused" where
  // they are a part of a measured layer; ", framework"
  // behind what AnalyticOptions::kernels makes longer; ", in pieces" where an
  // exchange cuts it.
  std::string how;
  // Measured rates alone follow the clock: the curves are of lasting loads.
  LoadedKernel load;
  std::string type;  // that IsClockMeasured takes, where rates are measured
};

// Under a lasting load's clock: a longer time, the law's error, and ", clock
// transferred" behind `how` where the law was not measured (clock.h).
void LowerClock(const DeviceSpec& device, double clock,
                KernelEstimate* estimate);

// Load of a kernel that waits for memory, with `seconds` and `bytes`.
LoadedKernel Streaming(double seconds, double bytes);

// Are there tables of fused layers of experts for these products?
bool HasFusedExperts(const AnalyticOptions& options,
                     const TrainingSpec& training);

// Is the op a part of such a layer, by strategy.fused_experts?
bool IsOfFusedExperts(const AnalyticOptions& options,
                      const TrainingSpec& training, const ModelOp& op);

// Does the pass run inside of a fused, measured layer of experts? Then it has
// neither an activation nor casts of its own.
bool IsInFusedExperts(const AnalyticOptions& options,
                      const TrainingSpec& training, const ModelOp& op,
                      OpPass pass);

// What W of a linear layer moves besides, where it adds to a sum of gradients
// in place of writing a gradient in 16 bit, and how much of that is not hidden
// behind its product. It is the median of 30 products of Llama's layers with
// 2048 to 8192 tokens on an H100, a sum in fp32 (experiments/torch_layers).
// Nine of ten lie within 0.36 of it; B200 and the A100 PCIe fit 0.94 and 0.33
// best (calibrate/silicon). Sums in 16 bit cost nothing that B200's products
// show. Nothing where layers are reduced as they come (FSDP2, odc), and with
// PyTorch's kernels, which add up elsewhere. [measured]
inline constexpr double kGradientSumPart = 0.54;
inline constexpr double kGradientSumError = 0.40;
double GradientSumSeconds(const AnalyticOptions& options,
                          const TrainingSpec& training, const ModelOp& op);

// In a short run. `is_rms`: the model's norms are RMS norms.
KernelEstimate EstimateKernel(const AnalyticOptions& options,
                              const TrainingSpec& training, bool causal,
                              const ModelOp& op, OpPass pass,
                              bool is_rms = true);

// The same where the product is cut because its exchange comes in pieces
// (strategy.overlap_tensor): products of as many fewer rows, one after the
// other. *cut_part: the part of the time that the cut costs. Streams of a
// framework may fill the ends of one piece with the next, so it is an upper
// end.
KernelEstimate EstimateInPieces(const AnalyticOptions& options,
                                const TrainingSpec& training, bool causal,
                                const ModelOp& op, OpPass pass, bool is_rms,
                                double* cut_part);

}  // namespace pipewright
