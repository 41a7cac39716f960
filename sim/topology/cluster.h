// A neutral graph of devices, links and routes that every engine reads. No
// SimGrid type appears here. Bandwidths are bytes per second, latencies
// seconds, both of one direction: a full-duplex cable is two links.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace pipewright {

using LinkId = int32_t;

// What a link is part of. Estimates know NVLink and network cards by their own
// rates; whatever else a message crosses is named by its shape.
enum class LinkKind : uint8_t { kFabric, kNvlink, kCard, kHost };
inline constexpr int kNumLinkKinds = 4;

struct Link {
  std::string name;  // "node3/gpu2/nvlink-up"
  double bytes_per_s = 0;
  double latency_s = 0;
  LinkKind kind = LinkKind::kFabric;
};

struct Device {
  std::string name;  // "node3/gpu2"
  int node = 0;
};

// A link and how many flows of a bundle cross it; of other work than a
// transfer, how many bytes of the link one unit of it takes.
struct LinkLoad {
  LinkId link = 0;
  double flows = 0;

  friend bool operator==(const LinkLoad&, const LinkLoad&) = default;
};

// Flows that start together, carry equal bytes and matter only as a whole: one
// from each device of a rank. They share each link equally, so what crosses
// the most loaded link decides.
struct FlowBundle {
  std::vector<LinkLoad> loads;  // each link once
  double latency_s = 0;         // on the longest route
};

class Cluster {
 public:
  // Appends the links that a message crosses, in order, each at most once.
  using RouteFunction =
      std::function<void(int from, int to, std::vector<LinkId>* links)>;
  // Appends the links between a device and the memory of its host.
  using HostRouteFunction =
      std::function<void(int device, std::vector<LinkId>* links)>;

  Cluster(std::string name, std::vector<Device> devices,
          std::vector<Link> links, RouteFunction route,
          HostRouteFunction device_to_host, HostRouteFunction host_to_device,
          HostRouteFunction host_memory = nullptr);

  const std::string& name() const { return name_; }
  int num_devices() const { return static_cast<int>(devices_.size()); }
  const std::vector<Device>& devices() const { return devices_; }
  const std::vector<Link>& links() const { return links_; }

  // Links from one device to another; empty when from == to.
  std::vector<LinkId> Route(int from, int to) const;
  // The same, behind what is in `links`.
  void AddRoute(int from, int to, std::vector<LinkId>* links) const;
  // The link of the device's PCIe switch is the first on the way to the host
  // and the last on the way back.
  std::vector<LinkId> DeviceToHost(int device) const;
  std::vector<LinkId> HostToDevice(int device) const;
  // What work of the host's cores on behalf of a device crosses: the memory,
  // which both routes above cross too, and their share of it. Empty where the
  // system says nothing of its hosts' memory.
  std::vector<LinkId> HostMemory(int device) const;

  // Sum of the latencies, and the smallest bandwidth, of `links`. An empty
  // list has latency 0 and infinite bandwidth.
  double LatencyOf(const std::vector<LinkId>& links) const;
  double BandwidthOf(const std::vector<LinkId>& links) const;

  // One flow over each of these routes, or [route] `weights` of them.
  FlowBundle Bundle(const std::vector<std::vector<LinkId>>& routes,
                    const std::vector<double>& weights = {}) const;
  // One flow from one device to another for each of `pairs`.
  FlowBundle BundleBetween(const std::vector<std::pair<int, int>>& pairs) const;
  // Bytes per second of every flow of a bundle while nothing else is sent;
  // infinite without links.
  double RateOf(const std::vector<LinkLoad>& loads) const;

  // A link as it was measured.
  void SetLink(LinkId link, double bytes_per_s, double latency_s);
  // Latency and time a byte of a link become `factor` times what they were.
  void SlowLink(LinkId link, double factor);

 private:
  std::string name_;
  std::vector<Device> devices_;
  std::vector<Link> links_;
  RouteFunction route_;
  HostRouteFunction device_to_host_;
  HostRouteFunction host_to_device_;
  HostRouteFunction host_memory_;
};

}  // namespace pipewright
