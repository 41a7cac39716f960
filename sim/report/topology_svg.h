// Pictures of clusters: which links join nodes and switches, and how devices,
// NICs, PCIe switches, roots and memory stand to each other inside a node.
#pragma once

#include <string>
#include <vector>

#include "sim/topology/cluster.h"
#include "sim/topology/registry.h"

namespace pipewright {

struct TopologyPicture {
  std::string title;
  ShapeParams params;  // complete (CompleteParams)
  const Cluster* cluster = nullptr;
};

// More are no picture.
inline constexpr int kMostDrawnNodes = 256;
inline constexpr int kMostDrawnDevices = 2048;

// One below the other. Switches and the links between nodes follow from the
// routes, so that any shape can be drawn; a line is all links between two
// places that are alike, both ways.
std::string TopologySvg(const std::vector<TopologyPicture>& pictures);

}  // namespace pipewright
