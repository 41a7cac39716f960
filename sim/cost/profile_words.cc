// Says in words what was measured and where it is from.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/cost/profile_costs.h"

namespace pipewright {

const char* HowName(ProfiledTime::How how) {
  switch (how) {
    case ProfiledTime::How::kMeasured:
      return "measured";
    case ProfiledTime::How::kInterpolated:
      return "interpolated";
    case ProfiledTime::How::kExtrapolated:
      return "extrapolated";
    case ProfiledTime::How::kScaled:
      return "scaled";
  }
  return "";
}

std::string DescribeProfile(const Profile& profile) {
  std::vector<std::string> sources;
  for (const ProfileSource& source : profile.sources) {
    const std::string line = absl::StrCat(
        source.device.empty() ? "unknown device" : source.device,
        source.backend.empty() ? "" : absl::StrCat(", ", source.backend),
        source.date.empty() ? "" : absl::StrCat(", ", source.date));
    if (std::find(sources.begin(), sources.end(), line) == sources.end()) {
      sources.push_back(line);
    }
  }
  return absl::StrJoin(sources, "; ");
}

}  // namespace pipewright
