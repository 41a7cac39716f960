#include "sim/cost/profile_interpolation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "sim/base/check.h"

namespace pipewright {
namespace {

// Nearness falls with this power of the distance: a point next door counts
// far more than several at twice its distance. [numerics]
constexpr double kDistancePower = 4;
// Distance between two shapes that are the same but for rounding, in powers of
// 2. [numerics]
constexpr double kSamePlace = 1e-9;
// Pivot over the largest entry below which columns count as dependent.
// [numerics]
constexpr double kSingular = 1e-10;

double Distance(const std::vector<double>& one,
                const std::vector<double>& other) {
  double square = 0;
  for (size_t axis = 0; axis < one.size(); ++axis) {
    const double step = std::log2(one[axis] / other[axis]);
    square += step * step;
  }
  return std::sqrt(square);
}

bool IsSameWork(const std::vector<double>& one,
                const std::vector<double>& other) {
  for (size_t part = 0; part < one.size(); ++part) {
    const double most = std::max(std::abs(one[part]), std::abs(other[part]));
    if (std::abs(one[part] - other[part]) > kSamePlace * most) return false;
  }
  return true;
}

// Solves the symmetric system in place. False where it is singular.
bool Solve(std::vector<std::vector<double>> matrix, std::vector<double> right,
           std::vector<double>* out) {
  const size_t size = right.size();
  for (size_t column = 0; column < size; ++column) {
    size_t pivot = column;
    for (size_t row = column + 1; row < size; ++row) {
      if (std::abs(matrix[row][column]) > std::abs(matrix[pivot][column])) {
        pivot = row;
      }
    }
    if (std::abs(matrix[pivot][column]) < kSingular) return false;
    std::swap(matrix[pivot], matrix[column]);
    std::swap(right[pivot], right[column]);
    for (size_t row = column + 1; row < size; ++row) {
      const double factor = matrix[row][column] / matrix[column][column];
      for (size_t at = column; at < size; ++at) {
        matrix[row][at] -= factor * matrix[column][at];
      }
      right[row] -= factor * right[column];
    }
  }
  out->assign(size, 0);
  for (size_t row = size; row-- > 0;) {
    double sum = right[row];
    for (size_t at = row + 1; at < size; ++at) {
      sum -= matrix[row][at] * (*out)[at];
    }
    (*out)[row] = sum / matrix[row][row];
  }
  return true;
}

// Weights of `points` at `where`, which is none of them; they add up to 1.
std::vector<double> Nearness(const std::vector<GridPoint>& points,
                             const std::vector<double>& where) {
  std::vector<double> weights;
  double sum = 0;
  for (const GridPoint& point : points) {
    const double distance = std::max(Distance(point.where, where), kSamePlace);
    weights.push_back(std::pow(distance, -kDistancePower));
    sum += weights.back();
  }
  for (double& weight : weights) weight /= sum;
  return weights;
}

}  // namespace

double Interpolation::Fit::At(const std::vector<double>& work) const {
  double seconds = coefficients[0];
  for (size_t part = 0; part < work.size(); ++part) {
    seconds += coefficients[part + 1] * work[part];
  }
  return seconds;
}

// Every choice of parts is tried: there are at most a few. Least squares of
// the relative error; a choice with a coefficient below 0 is none.
Interpolation::Fit Interpolation::FitTo(const std::vector<GridPoint>& points) {
  const size_t parts = points[0].work.size() + 1;
  const size_t most = (points.size() + 1) / 2;
  std::vector<double> scale(parts, 1);
  for (size_t part = 1; part < parts; ++part) {
    double largest = 0;
    for (const GridPoint& point : points) {
      largest = std::max(largest, point.work[part - 1] / point.seconds);
    }
    scale[part] = largest;
  }
  scale[0] = 1 / std::min_element(points.begin(), points.end(),
                                  [](const GridPoint& a, const GridPoint& b) {
                                    return a.seconds < b.seconds;
                                  })
                     ->seconds;
  Fit best;
  double least = std::numeric_limits<double>::infinity();
  for (size_t choice = 1; choice < size_t{1} << parts; ++choice) {
    std::vector<size_t> chosen;
    for (size_t part = 0; part < parts; ++part) {
      if ((choice >> part & 1) != 0 && scale[part] > 0) chosen.push_back(part);
    }
    if (chosen.empty() || chosen.size() > most) continue;
    // One point would fit a constant as well: take the work.
    const bool constant = choice == 1;
    const bool any_work = *std::max_element(scale.begin() + 1, scale.end()) > 0;
    if (points.size() == 1 && constant && any_work) continue;
    const auto value = [&](const GridPoint& point, size_t part) {
      return (part == 0 ? 1 : point.work[part - 1]) /
             (point.seconds * scale[part]);
    };
    std::vector<std::vector<double>> matrix(
        chosen.size(), std::vector<double>(chosen.size(), 0));
    std::vector<double> right(chosen.size(), 0);
    const double count = static_cast<double>(points.size());
    for (const GridPoint& point : points) {
      for (size_t row = 0; row < chosen.size(); ++row) {
        right[row] += value(point, chosen[row]) / count;
        for (size_t column = 0; column < chosen.size(); ++column) {
          matrix[row][column] +=
              value(point, chosen[row]) * value(point, chosen[column]) / count;
        }
      }
    }
    std::vector<double> solution;
    if (!Solve(std::move(matrix), std::move(right), &solution)) continue;
    if (*std::min_element(solution.begin(), solution.end()) < 0) continue;
    Fit fit;
    fit.coefficients.assign(parts, 0);
    for (size_t row = 0; row < chosen.size(); ++row) {
      fit.coefficients[chosen[row]] = solution[row] / scale[chosen[row]];
    }
    double square = 0;
    bool positive = true;
    for (const GridPoint& point : points) {
      const double fitted_s = fit.At(point.work);
      positive &= fitted_s > 0;
      const double error = fitted_s / point.seconds - 1;
      square += error * error;
    }
    if (!positive || square >= least) continue;
    least = square;
    best = std::move(fit);
  }
  PW_CHECK(!best.coefficients.empty());
  return best;
}

double Interpolation::Predict(const std::vector<GridPoint>& points,
                              const Fit& fit, const std::vector<double>& work,
                              const std::vector<double>& where) {
  const std::vector<double> weights = Nearness(points, where);
  double factor = 0;  // its logarithm
  for (size_t index = 0; index < points.size(); ++index) {
    factor += weights[index] *
              std::log(points[index].seconds / fit.At(points[index].work));
  }
  return fit.At(work) * std::exp(factor);
}

Interpolation::Interpolation(std::vector<GridPoint> points)
    : points_(std::move(points)), fit_(FitTo(points_)) {
  if (points_.size() < 2) return;
  for (size_t index = 0; index < points_.size(); ++index) {
    std::vector<GridPoint> others = points_;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(index));
    const GridPoint& point = points_[index];
    left_out_.push_back(
        Predict(others, FitTo(others), point.work, point.where) /
            point.seconds -
        1);
  }
}

Interpolated Interpolation::At(const std::vector<double>& work,
                               const std::vector<double>& where) const {
  Interpolated out;
  double outside = 0;
  for (size_t axis = 0; axis < where.size(); ++axis) {
    double least = std::numeric_limits<double>::infinity();
    double most = 0;
    for (const GridPoint& point : points_) {
      least = std::min(least, point.where[axis]);
      most = std::max(most, point.where[axis]);
    }
    outside = std::max({outside, std::log2(least / where[axis]),
                        std::log2(where[axis] / most)});
  }
  out.inside = outside <= kSamePlace;
  for (const GridPoint& point : points_) {
    if (Distance(point.where, where) > kSamePlace) continue;
    if (!IsSameWork(point.work, work)) break;
    out.seconds = point.seconds;
    out.measured = true;
    return out;
  }
  out.seconds = Predict(points_, fit_, work, where);
  out.error = -1;
  if (left_out_.empty()) return out;
  const std::vector<double> weights = Nearness(points_, where);
  double square = 0;
  for (size_t index = 0; index < points_.size(); ++index) {
    square += weights[index] * left_out_[index] * left_out_[index];
  }
  // Outside the grid it grows with every doubling.
  out.error = std::sqrt(square) * (1 + outside);
  return out;
}

}  // namespace pipewright
