#include "sim/schedule/nearest.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"

namespace pipewright {

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
