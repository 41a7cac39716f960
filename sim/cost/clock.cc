#include "sim/cost/clock.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"

namespace pipewright {

double EnergyOfType(absl::string_view type) {
  struct Width {
    double significand, operand;
  };
  constexpr double kMultiply = 0.2;
  constexpr double kAdd = 0.1;
  constexpr double kMove = kMultiply + kAdd;
  Width width = {8, 16};
  if (absl::StartsWith(type, "fp8")) width = {4, 8};
  if (absl::StrContains(type, "fp4")) width = {2, 4.5};
  const double part = width.significand / 8;
  return (kMultiply * part * part + kAdd + kMove * width.operand / 16) /
         (kMultiply + kAdd + kMove);
}

double LastingClock(const DeviceSpec& device, absl::string_view type,
                    double flops_per_s) {
  if (device.board_watts <= 0 || flops_per_s <= 0) return 1;
  const double joules = device.bf16_joules_per_flop * EnergyOfType(type);
  return std::min(1.0, std::cbrt((device.board_watts - device.idle_watts) /
                                 (joules * flops_per_s)));
}

}  // namespace pipewright
