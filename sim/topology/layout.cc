#include "sim/topology/layout.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

void AddLink(std::string name, const LinkClass& of, LinkKind kind,
             std::vector<Link>* links) {
  links->push_back({std::move(name), of.bytes_per_s, of.latency_s, kind});
}

}  // namespace

NodeLayout::NodeLayout(const ShapeParams& params, Nics nics)
    : nodes_(params.nodes),
      devices_(params.devices_per_node),
      nics_(params.nics_per_node == 0 ? params.devices_per_node
                                      : params.nics_per_node),
      pcie_per_switch_(params.pcie_per_switch),
      has_nvlink_(params.has_nvlink()),
      has_nics_(params.nodes > 1 && nics == Nics::kLinks),
      has_pcie_(params.has_pcie()),
      tree_(HostTreeOf(params)),
      has_device_links_(tree_.talks_over_pcie && pcie_per_switch_ > 1 &&
                        tree_.peers != HostTree::Peers::kNone),
      has_numa_links_(has_pcie_ && tree_.has_numa_links()),
      memories_(params.host.bytes_per_s == 0 ? 0
                : tree_.on_first             ? 1
                                             : tree_.numa_nodes),
      has_shares_(memories_ > 0 && memories_ < devices_),
      nic_offset_(has_nvlink_ ? devices_ * 2 : 0),
      pcie_offset_(nic_offset_ + (has_nics_ ? nics_ * 2 : 0)),
      root_offset_(pcie_offset_ +
                   (has_pcie_ ? devices_ / pcie_per_switch_ * 2 : 0)),
      numa_offset_(root_offset_ +
                   (has_pcie_ && tree_.has_roots() ? tree_.roots * 2 : 0)),
      both_offset_(numa_offset_ +
                   (has_numa_links_ ? (tree_.numa_nodes - 1) * 2 : 0)),
      device_offset_(both_offset_ + (has_pcie_ && tree_.directions_meet()
                                         ? devices_ / pcie_per_switch_
                                         : 0)),
      stride_(device_offset_ + (has_device_links_ ? devices_ * 2 : 0)) {}

std::vector<Device> NodeLayout::Devices() const {
  std::vector<Device> devices;
  devices.reserve(static_cast<size_t>(nodes_) * devices_);
  for (int node = 0; node < nodes_; ++node) {
    for (int device = 0; device < devices_; ++device) {
      devices.push_back({absl::StrCat("node", node, "/gpu", device), node});
    }
  }
  return devices;
}

std::vector<Link> NodeLayout::Links(const ShapeParams& params) const {
  std::vector<Link> links;
  links.reserve(num_links());
  for (int node = 0; node < nodes_; ++node) {
    const std::string prefix = absl::StrCat("node", node, "/");
    for (int device = 0; has_nvlink_ && device < devices_; ++device) {
      const std::string gpu = absl::StrCat(prefix, "gpu", device);
      AddLink(absl::StrCat(gpu, "/nvlink-up"), params.nvlink, LinkKind::kNvlink,
              &links);
      AddLink(absl::StrCat(gpu, "/nvlink-down"), params.nvlink,
              LinkKind::kNvlink, &links);
    }
    for (int index = 0; has_nics_ && index < nics_; ++index) {
      const std::string nic = absl::StrCat(prefix, "nic", index);
      AddLink(absl::StrCat(nic, "/up"), params.nic, LinkKind::kCard, &links);
      AddLink(absl::StrCat(nic, "/down"), params.nic, LinkKind::kCard, &links);
    }
    LinkClass to_host = params.pcie;
    to_host.bytes_per_s *= tree_.alone_factor;
    for (int index = 0; has_pcie_ && index < devices_ / pcie_per_switch_;
         ++index) {
      const std::string pcie = absl::StrCat(prefix, "pcie", index);
      AddLink(absl::StrCat(pcie, "/to-host"), to_host, LinkKind::kHost, &links);
      AddLink(absl::StrCat(pcie, "/to-device"), params.pcie, LinkKind::kHost,
              &links);
    }
    const auto add_blocks = [&](const char* name, int first, int count,
                                const LinkClass& kind) {
      for (int index = first; has_pcie_ && index < count; ++index) {
        const std::string block = absl::StrCat(prefix, name, index);
        AddLink(absl::StrCat(block, "/to-host"), kind, LinkKind::kHost, &links);
        AddLink(absl::StrCat(block, "/to-device"), kind, LinkKind::kHost,
                &links);
      }
    };
    if (tree_.has_roots()) add_blocks("root", 0, tree_.roots, tree_.root);
    if (has_numa_links_) add_blocks("numa", 1, tree_.numa_nodes, tree_.numa);
    for (int index = 0; has_pcie_ && tree_.directions_meet() &&
                        index < devices_ / pcie_per_switch_;
         ++index) {
      links.push_back({absl::StrCat(prefix, "pcie", index, "/both-ways"),
                       2 * params.pcie.bytes_per_s, 0, LinkKind::kHost});
    }
    for (int device = 0; has_device_links_ && device < devices_; ++device) {
      const std::string gpu = absl::StrCat(prefix, "gpu", device);
      AddLink(absl::StrCat(gpu, "/pcie-up"), to_host, LinkKind::kHost, &links);
      AddLink(absl::StrCat(gpu, "/pcie-down"), params.pcie, LinkKind::kHost,
              &links);
    }
  }
  return links;
}

void NodeLayout::AddMemoryLinks(const ShapeParams& params,
                                std::vector<Link>* links) const {
  for (int node = 0; node < nodes_; ++node) {
    const std::string prefix = absl::StrCat("node", node, "/");
    for (int index = 0; index < memories_; ++index) {
      const std::string numa =
          tree_.numa_nodes > 1 ? absl::StrCat("numa", index, "/") : "";
      links->push_back({absl::StrCat(prefix, numa, "host-memory"),
                        params.host.bytes_per_s * devices_ / tree_.numa_nodes,
                        0, LinkKind::kHost});
    }
    for (int device = 0; has_shares_ && device < devices_; ++device) {
      links->push_back({absl::StrCat(prefix, "gpu", device, "/host-share"),
                        params.host.bytes_per_s, 0, LinkKind::kHost});
    }
  }
}

void NodeLayout::AddHostMemory(int device, bool of_cores,
                               std::vector<LinkId>* links) const {
  if (memories_ == 0) return;
  const LinkId first =
      memory_begin_ +
      NodeOf(device) * (memories_ + (has_shares_ ? devices_ : 0));
  const int of_node = device % devices_;
  links->push_back(first + of_node * memories_ / devices_);
  if (of_cores && has_shares_) links->push_back(first + memories_ + of_node);
}

void NodeLayout::AddHostLinks(int device, std::vector<LinkId>* links,
                              bool to_first) const {
  if (!has_pcie_) return;
  links->push_back(ToHost(device));
  if (tree_.directions_meet()) links->push_back(BothWays(device));
  if (tree_.has_roots()) links->push_back(RootToHost(device));
  if (to_first && tree_.crosses_numa() && NumaOf(device) > 0) {
    links->push_back(NumaToHost(device));
  }
}

void NodeLayout::AddDeviceLinks(int device, std::vector<LinkId>* links,
                                bool from_first) const {
  // The way back crosses the other direction of each link.
  std::vector<LinkId> there;
  AddHostLinks(device, &there, from_first);
  for (auto link = there.rbegin(); link != there.rend(); ++link) {
    const bool both = tree_.directions_meet() && *link == BothWays(device);
    links->push_back(both ? *link : *link + 1);
  }
}

void NodeLayout::AddPeerLinks(int from, int to,
                              std::vector<LinkId>* links) const {
  const bool of_switch = ToHost(from) == ToHost(to);
  const bool at_switch = of_switch && has_device_links_;
  if (has_device_links_) links->push_back(PcieUp(from));
  if (!at_switch) {
    const bool by_memory = tree_.peers != HostTree::Peers::kNode;
    const bool by_first = by_memory && tree_.crosses_numa();
    AddHostLinks(from, links, by_first);
    if (by_memory) AddHostMemory(from, false, links);
    if (has_numa_links_ && !by_first && NumaOf(from) != NumaOf(to)) {
      if (NumaOf(from) > 0) links->push_back(NumaToHost(from));
      if (NumaOf(to) > 0) links->push_back(NumaToHost(to) + 1);
    }
    AddDeviceLinks(to, links, by_first);
    // Both ways share one link of their switch.
    if (of_switch && tree_.directions_meet()) {
      links->erase(
          std::find(links->rbegin(), links->rend(), BothWays(to)).base() - 1);
    }
  }
  if (has_device_links_) links->push_back(PcieDown(to));
}

Cluster NodeLayout::Build(const ShapeParams& params, std::vector<Link> fabric,
                          Cluster::RouteFunction route) const {
  std::vector<Link> links = Links(params);
  for (Link& link : fabric) links.push_back(std::move(link));
  NodeLayout layout = *this;
  layout.memory_begin_ = static_cast<LinkId>(links.size());
  AddMemoryLinks(params, &links);
  return Cluster(
      params.name.empty() ? params.shape : params.name, Devices(),
      std::move(links),
      [layout, route = std::move(route)](int from, int to,
                                         std::vector<LinkId>* out) {
        if (layout.NodeOf(from) != layout.NodeOf(to)) {
          if (!layout.tree_.stages_messages) return route(from, to, out);
          // What the NIC reads and writes in the host's memory is not counted
          // once more.
          if (layout.has_device_links_) out->push_back(layout.PcieUp(from));
          layout.AddHostLinks(from, out);
          layout.AddHostMemory(from, false, out);
          layout.AddDeviceLinks(layout.BesideNic(from), out);
          route(from, to, out);
          layout.AddHostLinks(layout.BesideNic(to), out);
          layout.AddHostMemory(to, false, out);
          layout.AddDeviceLinks(to, out);
          if (layout.has_device_links_) out->push_back(layout.PcieDown(to));
          return;
        }
        if (!layout.has_nvlink_) return layout.AddPeerLinks(from, to, out);
        out->push_back(layout.NvlinkUp(from));
        out->push_back(layout.NvlinkDown(to));
      },
      // Callers take the switch's link from the outer end.
      [layout](int device, std::vector<LinkId>* out) {
        layout.AddHostLinks(device, out);
        if (layout.has_device_links_) out->push_back(layout.PcieUp(device));
        layout.AddHostMemory(device, false, out);
      },
      [layout](int device, std::vector<LinkId>* out) {
        layout.AddHostMemory(device, false, out);
        if (layout.has_device_links_) out->push_back(layout.PcieDown(device));
        layout.AddDeviceLinks(device, out);
      },
      [layout](int device, std::vector<LinkId>* out) {
        layout.AddHostMemory(device, true, out);
      });
}

}  // namespace pipewright
