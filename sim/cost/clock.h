// The clock of a device under a lasting load. Short runs, of which the tables
// of measured rates are made, have the clock of the sheet; a board that draws
// more than its limit lowers it within a second.
//
// The law: power = idle + energy * rate * (f / f0)^2, where `rate` is the
// FLOP/s at clock f, which is itself in proportion to f: switching a gate takes
// energy in proportion to the square of the voltage, and the voltage follows
// the clock. So the rate falls to the cube root of (board - idle) / (energy *
// rate at f0) where that is below 1. Only `energy` is fitted, on B200 pairs of
// the same product in milliseconds and in seconds; calibrate/silicon/README.md
// has the fit, its spread and the check on another card.
#pragma once

#include "absl/strings/string_view.h"
#include "sim/cost/device.h"

namespace pipewright {

// Half of the 90 % interval of the law on the pairs that it was fitted to, as a
// part of the time (calibrate/silicon/check.py --part clock).
inline constexpr double kClockError = 0.12;

// Lasting rate over that of a short run, at most 1. `flops_per_s` is that of
// the short run, `type` the operands' ("bfloat16", "fp8", "fp8_block",
// "nvfp4"): EnergyOfType. 1 where the device's power is not known.
// Energy of a FLOP of a type over that of bf16, by the parts that it has. A
// multiplier's energy goes with the square of the significand's bits, and that
// of moving operands with their bits; the sum is as wide for all types. With
// bf16 (8 bits of significand, 16 of an operand) as 8-bit multiplication 0.2 pJ,
// 32-bit addition 0.1 pJ and as much for operands as for both (M. Horowitz,
// Computing's energy problem, ISSCC 2014, figure 1.1.9, the 8 and 32 bit rows):
// fp8 (4, 8) 0.50, nvfp4 (2, 4 and the scale) 0.32.
double EnergyOfType(absl::string_view type);

double LastingClock(const DeviceSpec& device, absl::string_view type,
                    double flops_per_s);

}  // namespace pipewright
