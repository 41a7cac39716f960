#include "calibrate/kineto_repeats.h"

#include <algorithm>
#include <cstddef>

namespace pipewright {
namespace {

// The search takes the square of it.
constexpr size_t kMostSearched = 8'000;
constexpr double kNearlyAll = 0.8;

}  // namespace

int64_t RepeatsOf(const std::vector<int32_t>& names) {
  const size_t count = names.size();
  if (count > kMostSearched) return 0;
  for (size_t period = 2; period <= count / 2; ++period) {
    size_t longest = 0;
    size_t run = 0;
    size_t end = 0;
    for (size_t at = 0; at + period < count; ++at) {
      run = names[at] == names[at + period] ? run + 1 : 0;
      if (run > longest) end = at;
      longest = std::max(longest, run);
    }
    const auto covered = static_cast<double>(longest + period);
    if (longest < period || covered < kNearlyAll * static_cast<double>(count)) {
      continue;
    }
    const auto block = names.begin() + static_cast<std::ptrdiff_t>(end);
    const bool is_one_name =
        std::all_of(block, block + static_cast<std::ptrdiff_t>(period),
                    [&](int32_t name) { return name == *block; });
    if (is_one_name) return 0;
    return static_cast<int64_t>((longest + period) / period);
  }
  return 0;
}

}  // namespace pipewright
