#include "sim/cost/silicon_grid.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pipewright {
namespace {

// A cell that was not measured. [numerics]
constexpr double kNothing = std::numeric_limits<double>::quiet_NaN();
// What interpolation adds to the error half way between shapes, as a part: the
// median of shapes left out is 2 to 3 %, nine of ten are within 10 %
// (calibrate/silicon/README.md). [kernel file]
constexpr double kHalfWayError = 0.10;
// The same for each doubling beyond the ends. No source. [assumption]
constexpr double kBeyondError = 0.10;
// Weights of axes fall with the square of the logarithm between the neighbours,
// and this. [numerics]
constexpr double kSameSize = 0.05;

// Where a size lies on an axis: between `low` and `low` + 1.
struct Place {
  int low = 0;
  int high = 0;
  double part = 0;       // part of high
  double doublings = 0;  // beyond an end
};

bool IsOdd(double size) { return std::fmod(size, 2) == 1; }

// Kernels for an odd number of rows are others: between even sizes only even
// ones count.
Place PlaceOn(const std::vector<double>& axis, double size) {
  Place place;
  const double inside = std::clamp(size, axis.front(), axis.back());
  place.doublings = std::abs(std::log2(size / inside));
  const auto above = std::lower_bound(axis.begin(), axis.end(), inside);
  place.high = static_cast<int>(above - axis.begin());
  place.low = *above == inside ? place.high : place.high - 1;
  if (place.low < place.high && !IsOdd(size)) {
    int low = place.low;
    int high = place.high;
    const int end = static_cast<int>(axis.size());
    while (low >= 0 && IsOdd(axis[low])) --low;
    while (high < end && IsOdd(axis[high])) ++high;
    if (low >= 0 && high < end) {
      place.low = low;
      place.high = high;
    }
  }
  if (place.low < place.high) {
    place.part = std::log(inside / axis[place.low]) /
                 std::log(axis[place.high] / axis[place.low]);
  }
  return place;
}

}  // namespace

SiliconGrid::SiliconGrid(const SiliconTable& table) {
  for (int row = 0; row < table.rows(); ++row) {
    for (int axis = 0; axis < 3; ++axis) {
      std::vector<double>& sizes = axes_[axis];
      const double size = table.row(row)[axis];
      const auto at = std::lower_bound(sizes.begin(), sizes.end(), size);
      if (at == sizes.end() || *at != size) sizes.insert(at, size);
    }
  }
  const size_t cells = static_cast<size_t>(Size(0)) * Size(1) * Size(2);
  logs_.assign(cells, kNothing);
  errors_.assign(cells, 0);
  const auto place = [](const std::vector<double>& axis, double size) {
    return static_cast<int>(std::lower_bound(axis.begin(), axis.end(), size) -
                            axis.begin());
  };
  for (int row = 0; row < table.rows(); ++row) {
    const double* sizes = table.row(row);
    const int index =
        Index(place(axes_[0], sizes[0]), place(axes_[1], sizes[1]),
              place(axes_[2], sizes[2]));
    logs_[index] = std::log(table.seconds(row));
    errors_[index] = table.error(row);
  }
  FillHoles();
}

void SiliconGrid::FillHoles() {
  const std::vector<double> measured = logs_;
  int steps[3] = {Index(1, 0, 0), Index(0, 1, 0), 1};
  int cell[3];
  for (cell[0] = 0; cell[0] < Size(0); ++cell[0]) {
    for (cell[1] = 0; cell[1] < Size(1); ++cell[1]) {
      for (cell[2] = 0; cell[2] < Size(2); ++cell[2]) {
        const int index = Index(cell[0], cell[1], cell[2]);
        if (!std::isnan(measured[index])) continue;
        double sum = 0;
        double weights = 0;
        double error = 0;
        // The nearest neighbour, for a hole at an edge.
        double least = std::numeric_limits<double>::infinity();
        double beside_log = kNothing;
        double beside_error = 0;
        for (int axis = 0; axis < 3; ++axis) {
          const std::vector<double>& sizes = axes_[axis];
          const int at = cell[axis];
          int low = at - 1;
          int high = at + 1;
          const auto log_at = [&](int place) {
            return measured[index + (place - at) * steps[axis]];
          };
          const bool odd = IsOdd(sizes[at]);
          const auto helps = [&](int place) {
            return IsOdd(sizes[place]) == odd && !std::isnan(log_at(place));
          };
          while (low >= 0 && !helps(low)) --low;
          while (high < Size(axis) && !helps(high)) ++high;
          for (const int one : {low, high}) {
            if (one < 0 || one >= Size(axis)) continue;
            const double away = std::log(sizes[at] / sizes[one]);
            if (std::abs(away) >= least) continue;
            least = std::abs(away);
            beside_log = log_at(one) + away;
            beside_error = errors_[index + (one - at) * steps[axis]];
          }
          if (low < 0 || high >= Size(axis)) continue;
          const double span = std::log(sizes[high] / sizes[low]);
          const double part = std::log(sizes[at] / sizes[low]) / span;
          // Times are in proportion to the size between like neighbours.
          const double log = (1 - part) * (log_at(low) - std::log(sizes[low])) +
                             part * (log_at(high) - std::log(sizes[high])) +
                             std::log(sizes[at]);
          const double weight = 1 / ((span + kSameSize) * (span + kSameSize));
          sum += weight * log;
          weights += weight;
          error += weight *
                   (errors_[index + (low - at) * steps[axis]] +
                    errors_[index + (high - at) * steps[axis]]) /
                   2;
        }
        if (weights == 0) {
          logs_[index] = beside_log;
          errors_[index] = std::hypot(beside_error, 2 * kHalfWayError);
          continue;
        }
        logs_[index] = sum / weights;
        errors_[index] = std::hypot(error / weights, kHalfWayError);
      }
    }
  }
}

SiliconTime SiliconGrid::At(double m, double n, double k,
                            const ProductModel& model) const {
  const double sizes[3] = {m, n, k};
  Place places[3];
  double inside[3];
  double doublings = 0;
  double between = 0;  // 1: half way on some axis
  for (int axis = 0; axis < 3; ++axis) {
    places[axis] = PlaceOn(axes_[axis], sizes[axis]);
    inside[axis] =
        std::clamp(sizes[axis], axes_[axis].front(), axes_[axis].back());
    doublings += places[axis].doublings;
    between =
        std::max(between, 4 * places[axis].part * (1 - places[axis].part));
  }
  double weights = 0;
  double by_work = 0;
  double by_model = 0;
  double error = 0;
  for (int corner = 0; corner < 8; ++corner) {
    double weight = 1;
    int cell[3];
    for (int axis = 0; axis < 3; ++axis) {
      const bool high = (corner >> axis & 1) != 0;
      weight *= high ? places[axis].part : 1 - places[axis].part;
      cell[axis] = high ? places[axis].high : places[axis].low;
    }
    if (weight == 0) continue;
    const double log = logs_[Index(cell[0], cell[1], cell[2])];
    if (std::isnan(log)) continue;
    const double corner_m = axes_[0][cell[0]];
    const double corner_n = axes_[1][cell[1]];
    const double corner_k = axes_[2][cell[2]];
    weights += weight;
    by_work += weight * (log - std::log(corner_m * corner_n * corner_k));
    by_model += weight * (log - std::log(model(corner_m, corner_n, corner_k)));
    error += weight * errors_[Index(cell[0], cell[1], cell[2])];
  }
  SiliconTime time;
  if (weights == 0) return time;
  const double log =
      0.5 * (by_work / weights + std::log(inside[0] * inside[1] * inside[2])) +
      0.5 * (by_model / weights +
             std::log(model(inside[0], inside[1], inside[2])));
  time.seconds = std::exp(log);
  time.is_inside = doublings == 0;
  if (!time.is_inside) {
    time.seconds *= model(m, n, k) / model(inside[0], inside[1], inside[2]);
  }
  time.error = std::hypot(error / weights, between * kHalfWayError,
                          doublings * kBeyondError);
  return time;
}

}  // namespace pipewright
