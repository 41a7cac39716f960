#include "sim/cost/clock.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"

namespace pipewright {
namespace {

// Below it no board goes; it ends the search where a sheet is nonsense.
// [numerics]
constexpr double kLeastClock = 0.1;
// The clock is found to 1e-12: halvings of the interval. [numerics]
constexpr int kHalvings = 40;
// Energy of a FLOP of fp8 over that of bf16 and over the ratio of their peaks:
// 0.637 and 1.19 pJ on an H100 (experiments/h100_load). [measured]
constexpr double kFp8Joules = 1.07;
// The same of 4 bit over fp8: it moves half of the bits; measured nowhere.
// [assumption]
constexpr double kFp4OverFp8 = 0.5;

}  // namespace

bool IsClockMeasured(absl::string_view device, absl::string_view type) {
  // experiments/h100_load has both; H200 with the energies of H100.
  if (device == "h100" || device == "h200") {
    return type == "bfloat16" || type == "fp8" || type == "attention";
  }
  return device == "b200" && type == "bfloat16";
}

double JoulesOfFlop(const DeviceSpec& device, absl::string_view type) {
  if (device.board_watts <= 0) return 0;
  double peak = device.bf16_flops;
  double factor = 1;
  if (absl::StartsWith(type, "fp8") && device.fp8_flops > 0) {
    peak = device.fp8_flops;
    factor = kFp8Joules;
  }
  if (absl::StrContains(type, "fp4") && device.fp8_flops > 0) {
    peak = device.fp8_flops;
    factor = kFp8Joules * kFp4OverFp8;
  }
  return factor * device.bf16_joules_per_flop * device.bf16_flops / peak;
}

double LoadedKernel::Seconds(double clock) const {
  return std::max(least_s, steady_s + clocked_s / clock);
}

double ClockUnder(const DeviceSpec& device,
                  absl::Span<const LoadedKernel> kernels, double idle_s) {
  double clocked_s = 0;
  LoadedKernel all;
  for (const LoadedKernel& kernel : kernels) {
    clocked_s += kernel.clocked_s;
    all.clocked_joules += kernel.clocked_joules;
    all.steady_joules += kernel.steady_joules;
  }
  const double limit = device.board_watts - device.idle_watts;
  if (device.board_watts <= 0 || clocked_s <= 0) return 1;
  const auto holds = [&](double clock) {
    double seconds = idle_s;
    for (const LoadedKernel& kernel : kernels) {
      seconds += kernel.Seconds(clock);
    }
    return all.Joules(clock) <= limit * seconds;
  };
  if (holds(1)) return 1;
  double low = kLeastClock;
  double high = 1;
  for (int step = 0; step < kHalvings; ++step) {
    const double middle = (low + high) / 2;
    (holds(middle) ? low : high) = middle;
  }
  return low;
}

double LastingClock(const DeviceSpec& device, absl::string_view type,
                    double flops_per_s) {
  if (flops_per_s <= 0) return 1;
  const LoadedKernel second = {
      .clocked_s = 1,
      .clocked_joules = JoulesOfFlop(device, type) * flops_per_s};
  return ClockUnder(device, {&second, 1}, 0);
}

namespace {

// A box plot's whiskers, beyond which outliers are, of a normal law: between
// them lie so many deviations. [numerics]
constexpr double kDeviationsOfRange = 5.4;

// Quantile of the normal law, for `above` of 0.5 and less; off by 4.5e-4 at
// most (M. Abramowitz and I. Stegun, Handbook of Mathematical Functions,
// 26.2.23). [paper]
double DeviationsAbove(double above) {
  const double t = std::sqrt(-2 * std::log(above));
  return t - (2.515517 + t * (0.802853 + t * 0.010328)) /
                 (1 + t * (1.432788 + t * (0.189269 + t * 0.001308)));
}

// Where the expected largest of so many draws lies (G. Blom, Statistical
// Estimates and Transformed Beta-Variables, 1958). [paper]
constexpr double kBlomAbove = 0.625;
constexpr double kBlomBeyond = 0.25;

}  // namespace

double EnergyOfSlowest(double range, int64_t devices) {
  if (range <= 0 || devices < 2) return 1;
  const auto count = static_cast<double>(devices);
  const double largest = DeviationsAbove(kBlomAbove / (count + kBlomBeyond));
  return std::exp(3 * std::log1p(range) / kDeviationsOfRange * largest);
}

}  // namespace pipewright
