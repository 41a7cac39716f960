// Shapes (how devices are wired, one file each in topologies/) and systems (a
// shape with the numbers of real hardware, one text file each in topologies/).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "sim/topology/cluster.h"

namespace pipewright {

// One direction of a kind of link. `source` says where the numbers are from.
struct LinkClass {
  double bytes_per_s = 0;
  double latency_s = 0;
  std::string source;
};

// All that a shape needs; a system file or the configuration fills it in.
struct ShapeParams {
  std::string name;   // of the system, for messages and reports
  std::string shape;  // registered name: "node", "nic-switch", "fat-tree"
  int nodes = 1;
  int devices_per_node = 1;
  int nics_per_node = 0;      // 0: one a device; devices share in blocks
  int pcie_per_switch = 1;    // devices that share one host link each way
  int nodes_per_leaf = 0;     // fat-tree
  double oversubscription = 1;  // fat-tree: leaf down / leaf up bandwidth
  LinkClass nvlink;  // device to the node's switch
  LinkClass nic;     // node to the fabric, per NIC
  LinkClass pcie;    // device to host memory
  std::string device_name;      // "H100 SXM5 80GB"
  double memory_bytes = 0;      // of one device
  std::string summary;
};

struct ShapeInfo {
  std::string name;
  std::string summary;
  // Error: kInvalidArgument with field, value and what is allowed.
  std::function<absl::StatusOr<Cluster>(const ShapeParams&)> build;
};

class RegisterShape {
 public:
  explicit RegisterShape(ShapeInfo info);
};

// Sorted by name.
const std::vector<const ShapeInfo*>& AllShapes();

// Checks what all shapes share, then builds.
absl::StatusOr<Cluster> BuildCluster(const ShapeParams& params);

}  // namespace pipewright
