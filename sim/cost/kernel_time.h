// Seconds of one kernel from its size: the efficiency curves of the analytic
// cost model. Constants are those of a DeviceSpec or stand here with the
// measurements that they are fitted on.
#pragma once

#include "sim/cost/device.h"
#include "sim/model/ops.h"
#include "sim/model/training.h"

namespace pipewright {

// The time of a kernel boundary, which a queued kernel adds to the stream. No
// source: it is assumed. [assumption, s]
inline constexpr double kKernelGapSeconds = 2e-6;

// C[m,n] = A[m,k] B[k,n], `count` of them in one launch, `bytes` to and from
// HBM. The largest of the time of the tiles, in whole waves over the
// multiprocessors, and that of the bytes.
double GemmSeconds(const DeviceSpec& device, Precision precision, double m,
                   double n, double k, double count, double bytes);

// FLOPs of attention backward over forward: five products over two
// (FlashAttention, arXiv 2205.14135). [numerics]
inline constexpr double kAttentionBackward = 2.5;

// Fused attention; FLOPs are those that count under a causal mask, `sequence`
// is the length of the keys.
double AttentionSeconds(const DeviceSpec& device, OpPass pass, bool causal,
                        double flops, double sequence);

// Host time of one product of a group: so long do groups take that are too
// small for the device (products of 2 to 5 GFLOP, 8.7 to 9.3 us each, in all
// three passes; MooreThreads/SimuMax 4dcaae513ba7, grouped products on B200).
// [kernel file, s]
inline constexpr double kGroupSeconds = 9e-6;

// The part of their traffic that groups do not hide. Hopper: the median of 165
// times of 11 groups on an H100, in bf16 and in fp8 with one scale a tensor, in
// all three passes (W written in bf16, over F's product of all rows). Groups
// ran one by one, on four streams and as one kernel. Nine of ten are within
// kHopperGroupedError of what follows (experiments/torch_layers, grouped.py).
// [measured]
inline constexpr double kHopperGroupedTraffic = 0.41;
inline constexpr double kHopperGroupedError = 0.12;
double GroupedTrafficPart(const DeviceSpec& device);

// Products of experts, one kernel each: `dense_s` is the time of all rows as
// one product, `bytes` the traffic of all groups. Groups are too short to hide
// their traffic, so both add up. On 75 grouped products of B200 that gives the
// time within 9 % in the median, 24 % for nine of ten; nothing is fitted but
// kGroupSeconds. On an H100 a part of the traffic is hidden
// (GroupedTrafficPart).
double GroupedSeconds(const DeviceSpec& device, double bytes, double groups,
                      double dense_s);

// A product (of a group: all its rows as one) by the curves, without messages.
double DenseSeconds(const DeviceSpec& device, const TrainingSpec& training,
                    const ModelOp& op, OpPass pass);

double StreamSeconds(const DeviceSpec& device, double bytes);

// One pass of one op, without its messages.
double OpSeconds(const DeviceSpec& device, const TrainingSpec& training,
                 bool causal, const ModelOp& op, OpPass pass);

}  // namespace pipewright
