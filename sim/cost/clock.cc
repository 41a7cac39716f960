#include "sim/cost/clock.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"

namespace pipewright {

double LastingClock(const DeviceSpec& device, absl::string_view type,
                    double flops_per_s) {
  if (device.board_watts <= 0 || flops_per_s <= 0) return 1;
  double peak = device.bf16_flops;
  if (absl::StartsWith(type, "fp8") && device.fp8_flops > 0) {
    peak = device.fp8_flops;
  }
  if (absl::StrContains(type, "fp4") && device.fp4_flops > 0) {
    peak = device.fp4_flops;
  }
  const double joules = device.bf16_joules_per_flop * device.bf16_flops / peak;
  return std::min(1.0, std::cbrt((device.board_watts - device.idle_watts) /
                                 (joules * flops_per_s)));
}

}  // namespace pipewright
