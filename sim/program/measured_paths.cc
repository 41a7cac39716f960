#include "sim/program/measured_paths.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"

namespace pipewright {
namespace {

// Is it a link that a measurement of such paths is of?
bool IsOf(const Link& link, PathEnds ends) {
  switch (ends) {
    case PathEnds::kToHost:
    case PathEnds::kToDevice:
      if (!absl::StrContains(link.name, "/pcie")) return false;
      return ends == PathEnds::kToHost
                 ? absl::EndsWith(link.name, "/to-host") ||
                       absl::EndsWith(link.name, "/pcie-up")
                 : absl::EndsWith(link.name, "/to-device") ||
                       absl::EndsWith(link.name, "/pcie-down");
    case PathEnds::kInNode:
      return link.kind == LinkKind::kNvlink;
    case PathEnds::kAcrossNodes:
      return link.kind == LinkKind::kCard;
  }
  return false;
}

}  // namespace

std::vector<LinkId> RouteWith(const Cluster& cluster, PathEnds ends) {
  if (ends == PathEnds::kToHost) return cluster.DeviceToHost(0);
  if (ends == PathEnds::kToDevice) return cluster.HostToDevice(0);
  for (int device = 1; device < cluster.num_devices(); ++device) {
    const bool across =
        cluster.devices()[device].node != cluster.devices()[0].node;
    if (across == (ends == PathEnds::kAcrossNodes)) {
      return cluster.Route(0, device);
    }
  }
  return {};
}

PathLine LineOf(const TimesBySize& seconds) {
  const auto& [least, least_s] = *seconds.begin();
  const auto& [most, most_s] = *seconds.rbegin();
  if (most > least && most_s > least_s) {
    const double bytes_per_s = (most - least) / (most_s - least_s);
    const double latency_s = least_s - least / bytes_per_s;
    if (latency_s >= 0) return {latency_s, bytes_per_s};
  }
  return {0, most / most_s};
}

PathShare ShareOf(const Cluster& cluster, PathEnds ends) {
  PathShare share;
  for (const LinkId link : RouteWith(cluster, ends)) {
    if (IsOf(cluster.links()[link], ends)) {
      ++share.own;
    } else {
      share.others_s += cluster.links()[link].latency_s;
    }
  }
  return share;
}

void MeasuredPaths::Add(PathEnds ends, TimesBySize seconds) {
  paths_[static_cast<int>(ends)].seconds = std::move(seconds);
}

bool MeasuredPaths::empty() const {
  return std::all_of(paths_.begin(), paths_.end(),
                     [](const Path& path) { return path.seconds.empty(); });
}

void MeasuredPaths::SetLinks(Cluster* cluster) {
  const std::vector<Link>& links = cluster->links();
  const auto num_links = static_cast<LinkId>(links.size());
  for (int number = 0; number < kNumPathEnds; ++number) {
    Path& path = paths_[number];
    const auto ends = static_cast<PathEnds>(number);
    if (RouteWith(*cluster, ends).empty()) path.seconds.clear();
    if (path.seconds.empty()) continue;
    const PathLine line = LineOf(path.seconds);
    const PathShare share = ShareOf(*cluster, ends);
    for (LinkId link = 0; share.own > 0 && link < num_links; ++link) {
      if (!IsOf(links[link], ends)) continue;
      cluster->SetLink(
          link, line.bytes_per_s,
          std::max(0.0, line.latency_s - share.others_s) / share.own);
    }
  }
  for (LinkId link = 0; both_ways_ > 0 && link < num_links; ++link) {
    if (!absl::EndsWith(links[link].name, "/both-ways")) continue;
    cluster->SetLink(link, both_ways_, 0);
  }
  for (int number = 0; number < kNumPathEnds; ++number) {
    if (paths_[number].seconds.empty()) continue;
    const std::vector<LinkId> route =
        RouteWith(*cluster, static_cast<PathEnds>(number));
    paths_[number].route = {cluster->LatencyOf(route),
                            cluster->BandwidthOf(route)};
  }
}

double MeasuredPaths::Beyond(PathEnds ends, double bytes) const {
  const Path& path = PathOf(ends);
  if (path.seconds.empty() || bytes <= 0) return 0;
  return AtSize(path.seconds, bytes).seconds - path.route.latency_s -
         bytes / path.route.bytes_per_s;
}

}  // namespace pipewright
