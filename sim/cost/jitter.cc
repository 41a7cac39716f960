#include "sim/cost/jitter.h"

#include <algorithm>
#include <cmath>

namespace pipewright {
namespace {

// Stands in the place of a pass's bits for what is no pass. [numerics]
constexpr uint64_t kOptimizerDraw = ~uint64_t{0};

// Which draws are a device's: bits of a word. [numerics]
uint64_t DeviceWord(int replica, int rank) {
  return static_cast<uint64_t>(static_cast<uint32_t>(replica)) << 32 |
         static_cast<uint32_t>(rank);
}

}  // namespace

double QuantileAt(const std::vector<double>& quantiles, double probability) {
  if (quantiles.empty()) return 1;
  const double place = probability * static_cast<double>(quantiles.size() - 1);
  const auto below = std::min(static_cast<size_t>(place), quantiles.size() - 1);
  const size_t above = std::min(below + 1, quantiles.size() - 1);
  const double part = place - static_cast<double>(below);
  return quantiles[below] + part * (quantiles[above] - quantiles[below]);
}

// Which draw is a pass's. Independent of how Pass packs its bits, so that a
// seed draws the same from version to version. [numerics]
uint64_t DrawOf(Pass pass) {
  return static_cast<uint64_t>(pass.kind()) |
         static_cast<uint64_t>(pass.direction()) << 3 |
         static_cast<uint64_t>(pass.chunk()) << 4 |
         static_cast<uint64_t>(pass.slice()) << 16 |
         static_cast<uint64_t>(pass.microbatch()) << 32;
}

double Jitter::Factor(const std::vector<double>& quantiles,
                      double probability) const {
  return sigma > 0 ? std::exp(sigma * NormalQuantile(probability))
                   : QuantileAt(quantiles, probability);
}

double Jitter::OfPass(int iteration, int replica, int rank, int stage,
                      Pass pass) const {
  static const std::vector<double> none;
  const std::vector<double>& quantiles =
      passes.empty() ? none : passes[stage][static_cast<int>(pass.kind())];
  return Factor(quantiles,
                UniformDraw(seed, static_cast<uint64_t>(iteration),
                            DeviceWord(replica, rank), DrawOf(pass)));
}

double Jitter::OfOptimizer(int iteration, int replica, int rank) const {
  return Factor(optimizer,
                UniformDraw(seed, static_cast<uint64_t>(iteration),
                            DeviceWord(replica, rank), kOptimizerDraw));
}

}  // namespace pipewright
