#include "sim/config/measured_system.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cost/profile_shape.h"
#include "sim/program/measured_paths.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

using Points = std::vector<std::pair<double, double>>;  // bytes, seconds

// A link of the file, and what was measured of it.
struct LinkRow {
  const char* name;  // the file's
  const char* what;
  const char* how;  // what would measure it
  PathEnds ends;
  std::optional<LinkClass> SystemNumbers::*number;
};
constexpr LinkRow kLinkRows[] = {
    {"nvlink", "send_recv in a node", "two GPUs of a node", PathEnds::kInNode,
     &SystemNumbers::nvlink},
    {"nic", "send_recv between two nodes", "GPUs of two nodes",
     PathEnds::kAcrossNodes, &SystemNumbers::nic},
    {"pcie", "d2h and h2d", "--device cuda", PathEnds::kToHost,
     &SystemNumbers::pcie}};

Points PointsOf(const Profile& profile, PathEnds ends) {
  Points points;
  const auto add = [&points](const TimesBySize& times) {
    points.insert(points.end(), times.begin(), times.end());
  };
  if (ends == PathEnds::kToHost) {
    add(TimesOfCopies(profile, CopyDirection::kDeviceToHost));
    add(TimesOfCopies(profile, CopyDirection::kHostToDevice));
  } else {
    add(TimesOfSends(profile, ends == PathEnds::kInNode ? 1 : 2));
  }
  return points;
}

// Two nodes, so that there are all routes, unless the shape is of one.
absl::StatusOr<Cluster> ClusterOf(ShapeParams params) {
  params.nodes = 2;
  absl::StatusOr<Cluster> cluster = BuildCluster(params);
  if (cluster.ok()) return cluster;
  params.nodes = 1;
  return BuildCluster(params);
}

// The largest relative error.
double ErrorOf(const Points& points, double latency_s, double s_per_byte) {
  double largest = 0;
  for (const auto& [bytes, seconds] : points) {
    largest = std::max(
        largest, std::abs((latency_s + bytes * s_per_byte) / seconds - 1));
  }
  return largest;
}

}  // namespace

FittedLine FitLine(const std::vector<std::pair<double, double>>& points) {
  // Normal equations of rows (1 / t, bytes / t) -> 1, each relative.
  double one = 0;
  double both = 0;
  double two = 0;
  double right_one = 0;
  double right_two = 0;
  for (const auto& [bytes, seconds] : points) {
    one += 1 / (seconds * seconds);
    both += bytes / (seconds * seconds);
    two += bytes / seconds * (bytes / seconds);
    right_one += 1 / seconds;
    right_two += bytes / seconds;
  }
  const double determinant = one * two - both * both;
  double latency_s = 0;
  double s_per_byte = right_two / two;
  // Equal sizes leave rounding behind.
  if (determinant > 1e-9 * one * two) {
    const double with_latency =
        (right_one * two - right_two * both) / determinant;
    const double slope = (right_two * one - right_one * both) / determinant;
    if (with_latency > 0 && slope > 0) {
      latency_s = with_latency;
      s_per_byte = slope;
    }
  }
  return {latency_s, 1 / s_per_byte, ErrorOf(points, latency_s, s_per_byte)};
}

absl::StatusOr<MeasuredSystem> SystemOfProfile(const Profile& profile,
                                               absl::string_view profile_name,
                                               absl::string_view base,
                                               absl::string_view base_name) {
  PW_ASSIGN_OR_RETURN(const ShapeParams params, ParseSystem(base, base_name));
  PW_ASSIGN_OR_RETURN(const Cluster cluster, ClusterOf(params));
  const std::string device =
      profile.sources.empty() || profile.sources[0].device.empty()
          ? params.device_name
          : profile.sources[0].device;
  SystemNumbers numbers = {
      .name = absl::StrCat(params.name, "-measured"),
      .summary = absl::StrCat("links of ", device, " as measured (",
                              profile_name, "), else ", params.name)};
  MeasuredSystem made;
  std::vector<std::string> kept;
  for (const LinkRow& row : kLinkRows) {
    const Points points = PointsOf(profile, row.ends);
    const PathShare share = ShareOf(cluster, row.ends);
    if (points.empty() || share.own == 0) {
      kept.push_back(absl::StrCat(
          row.name,
          points.empty()
              ? absl::StrCat(" (not measured: calibrate with ", row.how, ")")
              : absl::StrCat(" (", base_name, " has no such route)")));
      continue;
    }
    const FittedLine line = FitLine(points);
    const auto [least, most] =
        std::minmax_element(points.begin(), points.end());
    const std::string source = absl::StrFormat(
        "fit of latency + bytes / bandwidth to %d times of %s, %s to %s, in "
        "%s: off by at most %.2f %%; its latency, %s, is that of %d link%s",
        static_cast<int>(points.size()), row.what, FormatBytes(least->first),
        FormatBytes(most->first), profile_name, 100 * line.error,
        FormatSeconds(line.latency_s), share.own, share.own > 1 ? "s" : "");
    numbers.*row.number = LinkClass{
        line.bytes_per_s,
        std::max(0.0, line.latency_s - share.others_s) / share.own, source};
    absl::StrAppend(&made.report, row.name, ": ",
                    FormatBandwidth(line.bytes_per_s), ", ",
                    FormatSeconds((numbers.*row.number)->latency_s),
                    " a link\n  ", source, "\n");
  }
  if (made.report.empty()) {
    return BadValue(
        "PROFILE", profile_name,
        "a profile with copies to the host, or with send_recv over nccl on a "
        "known number of nodes");
  }
  if (profile.host_memory_bytes_per_s > 0) {
    const double devices = MeasuredDevices(profile);
    numbers.host_bytes_per_s = profile.host_memory_bytes_per_s / devices;
    numbers.host_source =
        absl::StrCat("measured in ", profile_name, ", shared by ", devices,
                     devices > 1 ? " devices" : " device");
    absl::StrAppend(&made.report, "host_memory_bandwidth: ",
                    FormatBandwidth(*numbers.host_bytes_per_s), "\n  ",
                    numbers.host_source, "\n");
  } else {
    kept.emplace_back("host_memory_bandwidth (not measured)");
  }
  absl::StrAppend(
      &made.report, "of ", base_name, ": ", absl::StrJoin(kept, ", "),
      kept.empty() ? "" : ", ", "device_name ", params.device_name,
      " (measured was ", device, "), shape, devices_per_node ",
      params.devices_per_node,
      ", nics_per_node, memory and what else it says; the number of "
      "nodes is the run's (--nodes)\n");
  PW_ASSIGN_OR_RETURN(made.text, SystemTextWith(base, base_name, numbers));
  return made;
}

}  // namespace pipewright
