// Kernels of collectives take multiprocessors and memory bandwidth from the
// passes that they run beside. Copy engines do not.
#pragma once

#include <algorithm>

#include "sim/cost/device.h"

namespace pipewright {

// A pass beside collectives over the same alone: the mean of fully sharded and
// of pipelined training of GPT and LLaMA on four A100, H100, MI250 and MI210;
// at most 1.40 (arXiv 2507.03114, abstract). [paper]
inline constexpr double kContention = 1.189;

// Layers of llama3-8b on an H100 with 132 multiprocessors beside a kernel that
// moves 50 and 350 GB/s with 16 of them: 1.17 to 1.28, geometric mean
// (experiments/beside). That NCCL takes 16 is an assumption. [measured]
inline constexpr double kHopperContention = 1.225;

// Multiprocessors of an H100 SXM, by its white paper. [data sheet]
inline constexpr double kHopperMultiprocessors = 132;

// What is lost goes with the multiprocessors that are missed, so a chip with
// fewer loses more.
inline double ContentionOf(const DeviceSpec& device) {
  if (device.architecture != "hopper" || device.multiprocessors <= 0) {
    return kContention;
  }
  const double lost = (1 - 1 / kHopperContention) * kHopperMultiprocessors /
                      device.multiprocessors;
  return 1 / (1 - std::min(lost, 0.5));
}

// By how much `pass_s` grows beside exchanges of `beside_s`, which keep their
// pace. As long as those run, 1 / contention of it gets done.
inline double ContentionSeconds(double contention, double pass_s,
                                double beside_s) {
  return std::min(pass_s * (contention - 1), beside_s * (1 - 1 / contention));
}

}  // namespace pipewright
