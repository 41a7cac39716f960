#include "sim/base/nearest.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace pipewright {
namespace {

constexpr int64_t kFarthest = int64_t{1} << 16;

}  // namespace

std::vector<int64_t> NearestWorking(int64_t value, int64_t highest,
                                    const std::function<bool(int64_t)>& works) {
  std::vector<int64_t> found;
  const int64_t start = std::min(value - 1, highest);
  for (int64_t below = start; below >= 1 && start - below < kFarthest;
       --below) {
    if (!works(below)) continue;
    found.push_back(below);
    break;
  }
  for (int64_t above = std::max(value + 1, int64_t{1});
       above <= highest && above - value < kFarthest; ++above) {
    if (!works(above)) continue;
    found.push_back(above);
    break;
  }
  return found;
}

std::string NearestDivisors(int64_t number, int64_t value) {
  return absl::StrJoin(
      NearestWorking(value, number,
                     [&](int64_t size) { return number % size == 0; }),
      ", ");
}

}  // namespace pipewright
