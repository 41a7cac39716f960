#include "sim/base/nearest.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr int64_t kFarthest = int64_t{1} << 16;
constexpr int64_t kMostDigits = 1'000'000;  // times 2^30 below 2^63

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

std::string DigitsOf(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const size_t end =
      std::min(text.find_first_not_of("0123456789"), text.size());
  int64_t number = 0;
  if (!absl::SimpleAtoi(text.substr(0, end), &number) || number < 1 ||
      number > kMostDigits) {
    return "";
  }
  const std::string unit =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(text.substr(end)));
  for (const auto& [name, power] :
       {std::pair("k", 1), {"ki", 1}, {"m", 2}, {"mi", 2}, {"g", 3}}) {
    if (unit != name) continue;
    int64_t binary = number;
    int64_t decimal = number;
    for (int step = 0; step < power; ++step) {
      binary *= 1024;
      decimal *= 1000;
    }
    return unit.size() > 1 ? absl::StrCat(binary)
                           : absl::StrCat(binary, " or ", decimal);
  }
  return "";
}

absl::Status WithDigits(absl::string_view text, const absl::Status& status) {
  const std::string digits = DigitsOf(text);
  if (digits.empty()) return status;
  return Reworded(
      status, absl::StrCat(status.message(), "; did you mean ", digits, "?"));
}

std::string NearestDivisors(int64_t number, int64_t value) {
  return absl::StrJoin(
      NearestWorking(value, number,
                     [&](int64_t size) { return number % size == 0; }),
      ", ");
}

absl::Status BadSize(absl::string_view field, int value,
                     const std::function<bool(int)>& works,
                     absl::string_view why) {
  const int most = static_cast<int>(std::min<int64_t>(
      int64_t{8} * value + 64, std::numeric_limits<int>::max() - 1));
  int below = value - 1;
  while (below >= 1 && !works(below)) --below;
  int above = value + 1;
  while (above <= most && !works(above)) ++above;
  std::vector<std::string> nearest;
  if (below >= 1) nearest.push_back(absl::StrCat(below));
  if (above <= most) nearest.push_back(absl::StrCat(above));
  return BadValue(field, absl::StrCat(value),
                  nearest.empty()
                      ? absl::StrCat("no value at this size (", why, ")")
                      : absl::StrCat(absl::StrJoin(nearest, " or "),
                                     ", the nearest (", why, ")"));
}

}  // namespace pipewright
