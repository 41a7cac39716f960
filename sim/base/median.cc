#include "sim/base/median.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace pipewright {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle =
      values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

double MedianMagnitude(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return Median(std::move(values));
}

}  // namespace pipewright
