#include "sim/model/minibatch_time.h"

#include <algorithm>

namespace pipewright {

MicrobatchTimes TimesOf(const Packing& packing,
                        const std::vector<int64_t>& lengths,
                        const TokenFit& fit) {
  MicrobatchTimes times;
  for (const Parts& device : packing) {
    std::vector<double>& own = times.emplace_back();
    for (const SampleSet& microbatch : device) {
      double seconds = 0;
      for (const int sample : microbatch) seconds += fit.At(lengths[sample]);
      own.push_back(seconds);
    }
  }
  return times;
}

MinibatchTime TimeOf(const MicrobatchTimes& times) {
  MinibatchTime result;
  result.devices = static_cast<int>(times.size());
  std::vector<double> slowest;
  for (const std::vector<double>& device : times) {
    double sum = 0;
    slowest.resize(std::max(slowest.size(), device.size()));
    for (size_t microbatch = 0; microbatch < device.size(); ++microbatch) {
      sum += device[microbatch];
      slowest[microbatch] = std::max(slowest[microbatch], device[microbatch]);
    }
    result.one_sided_s = std::max(result.one_sided_s, sum);
    result.work_s += sum;
  }
  for (const double seconds : slowest) result.lockstep_s += seconds;
  return result;
}

}  // namespace pipewright
