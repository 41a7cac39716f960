// Seconds of one kernel from its size: the efficiency curves of the analytic
// cost model. Constants are those of a DeviceSpec or stand here with the
// measurements that they are fitted on.
#pragma once

#include "sim/cost/device.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

// The time of a kernel boundary, which a queued kernel adds to the stream.
inline constexpr double kKernelGapSeconds = 2e-6;

// C[m,n] = A[m,k] B[k,n], `count` of them in one launch, `bytes` to and from
// HBM. The largest of the time of the tiles, in whole waves over the
// multiprocessors, and that of the bytes.
double GemmSeconds(const DeviceSpec& device, Precision precision, double m,
                   double n, double k, double count, double bytes);

// Fused attention; FLOPs are those that count under a causal mask, `sequence`
// is the length of the keys.
double AttentionSeconds(const DeviceSpec& device, OpPass pass, bool causal,
                        double flops, double sequence);

double StreamSeconds(const DeviceSpec& device, double bytes);

// One pass of one op, without its messages.
double OpSeconds(const DeviceSpec& device, const TrainingSpec& training,
                 bool causal, const ModelOp& op, OpPass pass);

}  // namespace pipewright
