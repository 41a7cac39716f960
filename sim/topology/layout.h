// Shared by all shapes: the devices and links of a node, numbered so that any
// of them is found by arithmetic instead of a table. A link that no route can
// use (NVLink in a node of one device, NICs of a single node) does not exist.
// Without NVLink a device has a link to its PCIe switch if it shares that with
// others which it reaches there.
//
// Links of node n, in this order: per device NVLink up and down, per NIC up
// and down, per PCIe switch to-host and to-device, per PCIe root and per NUMA
// node but the first likewise, per PCIe switch what both of its directions
// share, per device PCIe up and down. Behind the links of all nodes and of the
// fabric, for each node: per NUMA node its memory, per device what the host's
// cores for it get of that where others have it too. So the links of a system
// whose memory is known have the numbers that they have where it is not.
#pragma once

#include <string>
#include <vector>

#include "sim/topology/cluster.h"
#include "sim/topology/node_params.h"
#include "sim/topology/registry.h"

namespace pipewright {

class NodeLayout {
 public:
  // Links of a node to the fabric, NicUp() and NicDown(), if it has them.
  // Without them the shape's own links begin at the NICs.
  enum class Nics { kLinks, kNone };

  // `params` has passed the checks of BuildCluster.
  explicit NodeLayout(const ShapeParams& params, Nics nics = Nics::kLinks);

  int NodeOf(int device) const { return device / devices_; }
  // Index of the NIC that `device` uses, within its node.
  int NicOf(int device) const { return device % devices_ * nics_ / devices_; }

  bool has_nvlink() const { return has_nvlink_; }
  // Needs NVLink.
  LinkId NvlinkUp(int device) const {
    return NodeOf(device) * stride_ + device % devices_ * 2;
  }
  LinkId NvlinkDown(int device) const { return NvlinkUp(device) + 1; }
  LinkId NicUp(int device) const {
    return NodeOf(device) * stride_ + nic_offset_ + NicOf(device) * 2;
  }
  LinkId NicDown(int device) const { return NicUp(device) + 1; }
  // Needs PCIe.
  LinkId ToHost(int device) const {
    return NodeOf(device) * stride_ + pcie_offset_ +
           device % devices_ / pcie_per_switch_ * 2;
  }
  LinkId ToDevice(int device) const { return ToHost(device) + 1; }

  // Indices within the node.
  int RootOf(int device) const {
    return device % devices_ * tree_.roots / devices_;
  }
  int NumaOf(int device) const {
    return device % devices_ * tree_.numa_nodes / devices_;
  }
  // Needs links of roots, and of NUMA nodes but the first.
  LinkId RootToHost(int device) const {
    return NodeOf(device) * stride_ + root_offset_ + RootOf(device) * 2;
  }
  LinkId NumaToHost(int device) const {
    return NodeOf(device) * stride_ + numa_offset_ + (NumaOf(device) - 1) * 2;
  }

  // Needs PCIe switches whose directions slow each other.
  LinkId BothWays(int device) const {
    return NodeOf(device) * stride_ + both_offset_ +
           device % devices_ / pcie_per_switch_;
  }

  // Needs links of devices to their PCIe switch.
  LinkId PcieUp(int device) const {
    return NodeOf(device) * stride_ + device_offset_ + device % devices_ * 2;
  }
  LinkId PcieDown(int device) const { return PcieUp(device) + 1; }

  // Links of all nodes but for memory; a shape numbers its own from here.
  LinkId num_links() const { return nodes_ * stride_; }
  int nics() const { return nics_; }
  int nodes() const { return nodes_; }
  int devices() const { return devices_; }

  std::vector<Device> Devices() const;
  // The first num_links() links.
  std::vector<Link> Links(const ShapeParams& params) const;

  // A Cluster of these devices and links (followed by `fabric`), with host
  // routes over PCIe (empty without it), and `route` between devices of
  // different nodes; where hosts stage messages, from host to host.
  Cluster Build(const ShapeParams& params, std::vector<Link> fabric,
                Cluster::RouteFunction route) const;

 private:
  // The way between two devices of a node over PCIe.
  void AddPeerLinks(int from, int to, std::vector<LinkId>* links) const;
  // The links from a PCIe switch to the host, in that order, and back;
  // `to_first`: to the first NUMA node if copies lie there.
  void AddHostLinks(int device, std::vector<LinkId>* links,
                    bool to_first = true) const;
  void AddDeviceLinks(int device, std::vector<LinkId>* links,
                      bool from_first = true) const;
  void AddMemoryLinks(const ShapeParams& params,
                      std::vector<Link>* links) const;
  // The memory that the host's data of a device lies in, where its bandwidth is
  // known; and with `of_cores` the device's share of it.
  void AddHostMemory(int device, bool of_cores,
                     std::vector<LinkId>* links) const;
  // The first device behind the PCIe switch that the NIC of `device` is on.
  int BesideNic(int device) const {
    return NodeOf(device) * devices_ + NicOf(device) * devices_ / nics_;
  }

  int nodes_;
  int devices_;  // on a node
  int nics_;     // on a node
  int pcie_per_switch_;
  bool has_nvlink_;
  bool has_nics_;
  bool has_pcie_;
  HostTree tree_;
  bool has_device_links_;  // PcieUp() and PcieDown()
  bool has_numa_links_;
  int memories_;  // on a node; 0: their bandwidth is not known
  bool has_shares_;
  int nic_offset_;
  int pcie_offset_;
  int root_offset_;
  int numa_offset_;
  int both_offset_;
  int device_offset_;
  int stride_;                // links of a node but for memory
  LinkId memory_begin_ = -1;  // the first of memory, once it is known
};

}  // namespace pipewright
