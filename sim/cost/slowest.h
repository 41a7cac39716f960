// The slowest device of a job. Devices of one type differ in the energy that
// they need, and so in their speed where the limit of power holds them; all
// wait for the slowest one. No times.
#pragma once

#include <cstdint>

namespace pipewright {

// Speeds of the devices of one cluster: the fastest over the slowest, without
// outliers, minus 1. On average over five clusters and several applications;
// at most 0.22, outliers up to 1.5 times as slow as the median (arXiv
// 2208.11035, abstract: V100, RTX 5000 and MI60 under their limits). [paper]
inline constexpr double kSpeedRange = 0.08;
inline constexpr double kMostSpeedRange = 0.22;

// The energy of a FLOP on the slowest of `devices` over that on the median one,
// for speeds with this range: time under a limit goes by the cube root of the
// energy (clock.h). 1 for one device, which may be any.
double EnergyOfSlowest(double range, int64_t devices);

}  // namespace pipewright
