#include "sim/topology/cluster.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "sim/base/check.h"

namespace pipewright {
namespace {

// From here on flows are counted by link, and routes not sorted.
constexpr size_t kManyRoutes = 32;

}  // namespace

Cluster::Cluster(std::string name, std::vector<Device> devices,
                 std::vector<Link> links, RouteFunction route,
                 HostRouteFunction device_to_host,
                 HostRouteFunction host_to_device,
                 HostRouteFunction host_memory)
    : name_(std::move(name)),
      devices_(std::move(devices)),
      links_(std::move(links)),
      route_(std::move(route)),
      device_to_host_(std::move(device_to_host)),
      host_to_device_(std::move(host_to_device)),
      host_memory_(std::move(host_memory)) {}

std::vector<LinkId> Cluster::Route(int from, int to) const {
  std::vector<LinkId> links;
  AddRoute(from, to, &links);
  return links;
}

void Cluster::AddRoute(int from, int to, std::vector<LinkId>* links) const {
  PW_CHECK(from >= 0 && from < num_devices());
  PW_CHECK(to >= 0 && to < num_devices());
  if (from != to) route_(from, to, links);
}

std::vector<LinkId> Cluster::DeviceToHost(int device) const {
  std::vector<LinkId> links;
  device_to_host_(device, &links);
  return links;
}

std::vector<LinkId> Cluster::HostToDevice(int device) const {
  std::vector<LinkId> links;
  host_to_device_(device, &links);
  return links;
}

std::vector<LinkId> Cluster::HostMemory(int device) const {
  std::vector<LinkId> links;
  if (host_memory_ != nullptr) host_memory_(device, &links);
  return links;
}

void Cluster::SetLink(LinkId link, double bytes_per_s, double latency_s) {
  links_[link].bytes_per_s = bytes_per_s;
  links_[link].latency_s = latency_s;
}

void Cluster::SlowLink(LinkId link, double factor) {
  links_[link].latency_s *= factor;
  links_[link].bytes_per_s /= factor;
}

double Cluster::LatencyOf(const std::vector<LinkId>& links) const {
  double latency_s = 0;
  for (const LinkId link : links) latency_s += links_[link].latency_s;
  return latency_s;
}

double Cluster::BandwidthOf(const std::vector<LinkId>& links) const {
  double bytes_per_s = std::numeric_limits<double>::infinity();
  for (const LinkId link : links) {
    bytes_per_s = std::min(bytes_per_s, links_[link].bytes_per_s);
  }
  return bytes_per_s;
}

FlowBundle Cluster::Bundle(const std::vector<std::vector<LinkId>>& routes,
                           const std::vector<double>& weights) const {
  FlowBundle bundle;
  for (size_t index = 0; index < routes.size(); ++index) {
    const std::vector<LinkId>& route = routes[index];
    const double flows = weights.empty() ? 1 : weights[index];
    bundle.latency_s = std::max(bundle.latency_s, LatencyOf(route));
    for (const LinkId link : route) bundle.loads.push_back({link, flows});
  }
  if (routes.size() < 2) return bundle;
  std::sort(bundle.loads.begin(), bundle.loads.end(),
            [](const LinkLoad& left, const LinkLoad& right) {
              return left.link < right.link;
            });
  size_t last = 0;
  for (size_t index = 1; index < bundle.loads.size(); ++index) {
    if (bundle.loads[index].link == bundle.loads[last].link) {
      bundle.loads[last].flows += bundle.loads[index].flows;
    } else {
      bundle.loads[++last] = bundle.loads[index];
    }
  }
  if (!bundle.loads.empty()) bundle.loads.resize(last + 1);
  return bundle;
}

FlowBundle Cluster::BundleBetween(
    const std::vector<std::pair<int, int>>& pairs) const {
  FlowBundle bundle;
  if (pairs.size() < kManyRoutes) {
    std::vector<std::vector<LinkId>> routes;
    for (const auto& [from, to] : pairs) routes.push_back(Route(from, to));
    return Bundle(routes);
  }
  std::vector<double> flows(links_.size());
  std::vector<LinkId> route;
  for (const auto& [from, to] : pairs) {
    route.clear();
    AddRoute(from, to, &route);
    bundle.latency_s = std::max(bundle.latency_s, LatencyOf(route));
    for (const LinkId link : route) flows[link] += 1;
  }
  for (size_t link = 0; link < flows.size(); ++link) {
    if (flows[link] == 0) continue;
    bundle.loads.push_back({static_cast<LinkId>(link), flows[link]});
  }
  return bundle;
}

double Cluster::RateOf(const std::vector<LinkLoad>& loads) const {
  double bytes_per_s = std::numeric_limits<double>::infinity();
  for (const LinkLoad& load : loads) {
    bytes_per_s =
        std::min(bytes_per_s, links_[load.link].bytes_per_s / load.flows);
  }
  return bytes_per_s;
}

}  // namespace pipewright
