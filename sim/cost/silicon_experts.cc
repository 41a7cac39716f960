// Layers of experts from tables of measured rates.
#include <algorithm>
#include <cmath>
#include <utility>

#include "sim/cost/silicon.h"

namespace pipewright {
namespace {

// One of eight measured layers is left out and estimated from its neighbours,
// the nearest an octave away: 90 % are within 20 to 24 % on Blackwell, within
// 38 and 48 % on Hopper (calibrate/silicon/README.md). [kernel file]
constexpr double kBetweenExperts = 0.24;
constexpr double kBetweenHopperExperts = 0.48;
// Neighbours that count, with the weight 1 / (squared distance + kSameLayer);
// doublings to the nearest up to which a layer is among the measured ones.
// [numerics]
constexpr int kNeighbours = 4;
constexpr double kSameLayer = 0.01;
constexpr double kInsideDoublings = 1.5;

}  // namespace

bool Silicon::HasExperts(const std::string& type) const {
  const SiliconTable* const table = Find({"experts", type});
  return table != nullptr && table->rows() > 0;
}

std::optional<SiliconTime> Silicon::Experts(
    const std::string& type, double groups, double rows, double hidden,
    double inner, const ExpertsReference& reference) const {
  const SiliconTable* const table = Find({"experts", type});
  if (!HasExperts(type) || groups < 1 || rows < 1) return {};
  std::vector<std::pair<double, int>> order;  // squared distance, row
  const double sizes[] = {groups, rows, hidden, inner};
  for (int row = 0; row < table->rows(); ++row) {
    double square = 0;
    for (int size = 0; size < table->sizes; ++size) {
      const double distance = std::log2(table->row(row)[size] / sizes[size]);
      square += distance * distance;
    }
    order.emplace_back(square, row);
  }
  const auto end =
      order.begin() + std::min<ptrdiff_t>(kNeighbours, std::ssize(order));
  std::partial_sort(order.begin(), end, order.end());
  double log_ratio = 0;
  double error = 0;
  double weights = 0;
  for (auto at = order.begin(); at != end; ++at) {
    const double weight = 1 / (at->first + kSameLayer);
    const double* own = table->row(at->second);
    log_ratio += weight * std::log(table->seconds(at->second) /
                                   reference(own[0], own[1], own[2], own[3]));
    error += weight * table->error(at->second);
    weights += weight;
  }
  const double nearest = std::sqrt(order.front().first);
  SiliconTime time;
  time.seconds =
      std::exp(log_ratio / weights) * reference(groups, rows, hidden, inner);
  time.is_inside = nearest <= kInsideDoublings;
  const double between = device_.architecture == "hopper"
                             ? kBetweenHopperExperts
                             : kBetweenExperts;
  time.error = std::hypot(error / weights, between * std::min(3.0, nearest));
  return time;
}

}  // namespace pipewright
