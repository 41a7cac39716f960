// What lies between the PCIe switches of a node and the memory of its host:
// roots, each of which serves a block of PCIe switches, and NUMA nodes, each of
// which has a block of the roots; and whether messages between nodes go there.
// Every shape takes these as system.params (NodeParams() in registry.h).
// Without them a copy crosses the link of its PCIe switch alone.
#pragma once

#include "absl/status/status.h"
#include "sim/topology/registry.h"

namespace pipewright {

struct HostTree {
  // How many times faster the link of a PCIe switch is to the host while it
  // copies nothing to its devices; with both directions busy each has the
  // link's own bandwidth. 1: the directions do not slow each other.
  double alone_factor = 1;
  int roots = 1;   // on a node
  LinkClass root;  // between a root and the memory; without bandwidth there is
                   // no link: copies do not meet at a root
  int numa_nodes = 1;
  LinkClass numa;  // between another NUMA node and the first
  // The host's part of copies lies in the memory of the first NUMA node, as
  // where nothing binds a process; else in that of the device.
  bool on_first = false;
  // Messages between nodes are copied to the host and from there to the NIC,
  // and the same way back; else a NIC reads and writes devices (GPUDirect).
  bool stages_messages = false;
  // Devices of a node have no NVLink and talk over PCIe.
  bool talks_over_pcie = false;
  // How far apart devices without NVLink read each other's memory; messages to
  // others go by way of the host's memory.
  enum class Peers { kNone, kSwitch, kNode };
  Peers peers = Peers::kNone;

  bool directions_meet() const { return alone_factor > 1; }
  bool has_roots() const { return root.bytes_per_s > 0; }
  bool crosses_numa() const { return on_first && numa_nodes > 1; }
  bool has_numa_links() const {
    return crosses_numa() ||
           (talks_over_pcie && numa_nodes > 1 && numa.bytes_per_s > 0);
  }
};

// Tree by complete, legal parameters.
HostTree HostTreeOf(const ShapeParams& params);

// The parameter of HostTree::stages_messages.
inline constexpr char kNetworkStaging[] = "network_staging";

// The parameter of HostTree::peers.
inline constexpr char kPciePeers[] = "pcie_peers";

// Blocks have to be equal, and a link that copies cross needs a bandwidth.
// Error: kInvalidArgument about "params.KEY".
absl::Status CheckHostTree(const ShapeParams& params);

}  // namespace pipewright
