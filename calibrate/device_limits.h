// What a device cannot do faster, as far as that is known of it.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/profile/profile.h"

namespace pipewright {

// A second, and bytes a second; 0: not known.
struct DeviceLimits {
  double bf16_flops = 0;
  double fp8_flops = 0;
  double attention_flops = 0;
  double memory = 0;
  double pcie = 0;       // one way
  double nvlink = 0;     // one way
  double clock_mhz = 0;  // below it the device is capped
  // Up to so many bytes that a kernel writes stay in the last-level cache and
  // reach the memory after its end; below 0: not known, perhaps all.
  int64_t cache_bytes = -1;
};

// Limits by the data sheet of the shipped device that fits `source`, and by
// what the device says of itself in `states`. `cache_bytes` 0: not known.
DeviceLimits LimitsOfGpu(const ProfileSource& source,
                         const std::vector<ProfileState>& states,
                         int64_t cache_bytes);
DeviceLimits LimitsOfCpu();

}  // namespace pipewright
