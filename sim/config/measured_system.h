// A system file from a profile: another system's, with the links that the
// profile has measured.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/profile/profile.h"

namespace pipewright {

// The line latency + bytes / bandwidth with the least squares of relative
// errors; neither is below 0.
struct FittedLine {
  double latency_s = 0;
  double bytes_per_s = 0;
  double error = 0;  // the largest relative error of a point
};
// At least one (bytes, seconds), all above 0.
FittedLine FitLine(const std::vector<std::pair<double, double>>& points);

struct MeasuredSystem {
  std::string text;    // the file
  std::string report;  // what was measured, and what is the base's
};
// `profile_name` and `base_name` are for sources and errors. The number of
// devices of a node, cards, fabric and memory are the base's. Error:
// kInvalidArgument where the profile measured no link, or the base does not
// parse.
absl::StatusOr<MeasuredSystem> SystemOfProfile(const Profile& profile,
                                               absl::string_view profile_name,
                                               absl::string_view base,
                                               absl::string_view base_name);

}  // namespace pipewright
