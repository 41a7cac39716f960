// What packing alone makes of the time of a minibatch, without any
// communication: devices that meet after every microbatch against devices that
// meet once. The analytic side of ODC (arXiv 2601.19362, equation 1).
#pragma once

#include <cstdint>
#include <vector>

#include "sim/model/packer.h"

namespace pipewright {

// [device][microbatch], seconds.
using MicrobatchTimes = std::vector<std::vector<double>>;

MicrobatchTimes TimesOf(const Packing& packing,
                        const std::vector<int64_t>& lengths,
                        const TokenFit& fit);

struct MinibatchTime {
  // Sum over microbatches of the slowest device's; one with fewer idles.
  double lockstep_s = 0;
  double one_sided_s = 0;  // the slowest device's sum
  double work_s = 0;       // sum of all devices
  int devices = 0;

  // The part of all devices' time that is not work.
  double BubbleLockstep() const { return 1 - work_s / (devices * lockstep_s); }
  double BubbleOneSided() const { return 1 - work_s / (devices * one_sided_s); }
};
MinibatchTime TimeOf(const MicrobatchTimes& times);

}  // namespace pipewright
