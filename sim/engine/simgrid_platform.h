// The hosts, links and routes of a cluster as engine `simgrid` has them, and as
// an XML file for other programs on SimGrid (simgrid.dtd, version 4.1; reference:
// SimGrid 3.32 manual, "XML Reference"). There is a host for each device and
// one for the memory of each node.
//
// The file has all links of a route and their latencies. The engine leaves out
// links that cannot bind, and pays latencies before a Comm (simgrid_engine.h):
// a Comm that is alone takes the same.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "sim/topology/cluster.h"

namespace pipewright {

// Flops a second of a core of a host: a second of work is so many. A power of
// two, so that no time is rounded.
constexpr double kSimgridSpeed = 1099511627776.0;  // 2^40

// Devices first, then the memory of each node; all different.
std::vector<std::string> SimgridHostNames(const Cluster& cluster);
// [link], all different.
std::vector<std::string> SimgridLinkNames(const Cluster& cluster);

// Error: more devices than a file with a route for each two of them is for.
absl::StatusOr<std::string> SimgridPlatformXml(const Cluster& cluster);

}  // namespace pipewright
