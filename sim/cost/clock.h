// The clock of a device under a lasting load. Short runs, of which the tables
// of measured rates are made, have the clock of the sheet; a board that draws
// more than its limit lowers it within a second.
//
// The law: a kernel that computes takes its time over the clock, and its energy
// times the square of the clock (switching takes energy in proportion to the
// square of the voltage, which follows the clock); a kernel that waits for
// memory keeps both. The clock is the largest, at most 1, at which the mean
// power of the kernels that run in turn is the board's limit: the regulator is
// slower than they are. For a single product that is the cube root of (board -
// idle) / (energy of a FLOP * rate).
//
// `clock` is the part of the short run's rate that is left, not that of the
// frequency: on an H100 products keep 0.85 of their rate at 0.70 of it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "sim/cost/device.h"

namespace pipewright {

// What a kernel is to the clock, in a short run.
struct LoadedKernel {
  double clocked_s = 0;  // goes by the clock
  double steady_s = 0;   // does not
  double least_s = 0;    // at least of both, at any clock; the rest is waiting
  // Above the idle power's, of each part.
  double clocked_joules = 0;
  double steady_joules = 0;

  double Seconds(double clock) const;
  double Joules(double clock) const {
    return clocked_joules * clock * clock + steady_joules;
  }
};

// Half of the 90 % interval of the law, as a part of the time: on the pairs of
// B200 that it was fitted to (calibrate/silicon/check.py --part clock).
// [kernel file]
inline constexpr double kClockError = 0.29;
// The A100 PCIe, to which nothing is fitted: nine of ten products within 9 to
// 12 % (calibrate/silicon). Taken for types and boards of a measured chip.
// [kernel file]
inline constexpr double kOtherLimitError = 0.11;
// The same on mixtures on one H100, whose products alone gave the energies
// (experiments/h100_load). [measured]
inline constexpr double kHopperClockError = 0.03;

// Was the law measured on the chip of this device ("h100", "b200", ...) for
// products with operands of `type` ("bfloat16", "fp8", ...), or for
// "attention"? Elsewhere it is carried over.
bool IsClockMeasured(absl::string_view device, absl::string_view type);

// Energy of a product's FLOP, above the idle power. A FLOP of fp8 takes 1.07
// times the energy of bf16 over the ratio of their peaks (measured on an H100:
// 0.637 and 1.19 pJ). One of 4 bit was measured nowhere and is taken to need
// half of fp8's, as it moves half of the bits: B200's ratio of the peaks.
// B300's, 3, is of more units, which do not lower the energy of one. 0 if the
// device's power is not known.
double JoulesOfFlop(const DeviceSpec& device, absl::string_view type);

// Energy of an attention's FLOP over a product's: exponentials beside them.
// H100, cuDNN 9.19, d = 128, causal (experiments/h100_load). [measured]
inline constexpr double kAttentionForwardJoules = 1.24;
inline constexpr double kAttentionBackwardJoules = 1.35;

// Energy of a byte read or written in the device's memory: a copy at 3.03 TB/s
// draws 404 W above an H100's idle power (experiments/h100_load). Other devices
// are taken to need the same. The energy of a product's FLOP has its own
// traffic inside, 4 % of it. [measured, J]
inline constexpr double kJoulesOfByte = 133e-12;

// Clock under a load of `kernels`, one after the other, and `idle_s` in which
// none runs. 1 if the device's power is not known.
double ClockUnder(const DeviceSpec& device,
                  absl::Span<const LoadedKernel> kernels, double idle_s);

// Clock of one product which runs again and again at `flops_per_s` in a short
// run.
double LastingClock(const DeviceSpec& device, absl::string_view type,
                    double flops_per_s);

// The slowest device of a job. Devices of one type differ in the energy that
// they need, and so in their speed where the limit of power holds them; all
// wait for the slowest one. No times.

// Speeds of the devices of one cluster: the fastest over the slowest, without
// outliers, minus 1. On average over five clusters and several applications;
// at most 0.22, outliers up to 1.5 times as slow as the median (arXiv
// 2208.11035, abstract: V100, RTX 5000 and MI60 under their limits). [paper]
inline constexpr double kSpeedRange = 0.08;
inline constexpr double kMostSpeedRange = 0.22;

// The energy of a FLOP on the slowest of `devices` over that on the median one,
// for speeds with this range: time under a limit goes by the cube root of the
// energy. 1 for one device, which may be any.
double EnergyOfSlowest(double range, int64_t devices);

}  // namespace pipewright
