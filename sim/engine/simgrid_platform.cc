#include "sim/engine/simgrid_platform.h"

#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "sim/base/status.h"
#include "sim/program/op_kind.h"

namespace pipewright {
namespace {

constexpr int kMostFileDevices = 512;

// Those of a cluster that somebody has made may be empty or alike.
std::vector<std::string> Distinct(std::vector<std::string> names,
                                  const char* prefix) {
  std::set<std::string> known;
  for (size_t index = 0; index < names.size(); ++index) {
    if (names[index].empty() || !known.insert(names[index]).second) {
      names[index] = absl::StrCat(prefix, index);
      known.insert(names[index]);
    }
  }
  return names;
}

std::string Escaped(const std::string& name) {
  return absl::StrReplaceAll(name,
                             {{"&", "&amp;"}, {"<", "&lt;"}, {"\"", "&quot;"}});
}

}  // namespace

std::vector<std::string> SimgridHostNames(const Cluster& cluster) {
  std::vector<std::string> names;
  int nodes = 0;
  for (const Device& device : cluster.devices()) {
    names.push_back(device.name);
    nodes = std::max(nodes, device.node + 1);
  }
  for (int node = 0; node < nodes; ++node) {
    names.push_back(absl::StrCat("node", node, "/memory"));
  }
  return Distinct(std::move(names), "host");
}

std::vector<std::string> SimgridLinkNames(const Cluster& cluster) {
  std::vector<std::string> names;
  for (const Link& link : cluster.links()) names.push_back(link.name);
  return Distinct(std::move(names), "link");
}

absl::StatusOr<std::string> SimgridPlatformXml(const Cluster& cluster) {
  const int devices = cluster.num_devices();
  if (devices > kMostFileDevices) {
    return BadValue("system.nodes * system.devices_per_node",
                    absl::StrCat(devices),
                    absl::StrCat("1 to ", kMostFileDevices,
                                 " devices in a file of SimGrid, which has a "
                                 "route for each two of them"));
  }
  const std::vector<std::string> hosts = SimgridHostNames(cluster);
  const std::vector<std::string> links = SimgridLinkNames(cluster);
  std::string xml =
      "<?xml version=\"1.0\"?>\n"
      "<!DOCTYPE platform SYSTEM \"https://simgrid.org/simgrid.dtd\">\n"
      "<platform version=\"4.1\">\n"
      "  <config>\n"
      "    <prop id=\"network/model\" value=\"CM02\"/>\n"
      "    <prop id=\"network/crosstraffic\" value=\"0\"/>\n"
      "    <prop id=\"network/TCP-gamma\" value=\"1e20\"/>\n"
      "  </config>\n"
      "  <zone id=\"cluster\" routing=\"Full\">\n";
  for (const std::string& host : hosts) {
    absl::StrAppendFormat(&xml,
                          "    <host id=\"%s\" speed=\"%.0ff\" core=\"%d\"/>\n",
                          Escaped(host), kSimgridSpeed, kNumStreams);
  }
  for (size_t link = 0; link < links.size(); ++link) {
    absl::StrAppendFormat(
        &xml,
        "    <link id=\"%s\" bandwidth=\"%.17gBps\" latency=\"%.17gs\"/>\n",
        Escaped(links[link]), cluster.links()[link].bytes_per_s,
        cluster.links()[link].latency_s);
  }
  const auto add = [&](int from, int to, const std::vector<LinkId>& route) {
    if (route.empty()) return;
    absl::StrAppend(&xml, "    <route src=\"", Escaped(hosts[from]),
                    "\" dst=\"", Escaped(hosts[to]), "\" symmetrical=\"NO\">");
    for (const LinkId link : route) {
      absl::StrAppend(&xml, "<link_ctn id=\"", Escaped(links[link]), "\"/>");
    }
    absl::StrAppend(&xml, "</route>\n");
  };
  for (int from = 0; from < devices; ++from) {
    const int memory = devices + cluster.devices()[from].node;
    add(from, memory, cluster.DeviceToHost(from));
    add(memory, from, cluster.HostToDevice(from));
    for (int to = 0; to < devices; ++to) {
      if (from != to) add(from, to, cluster.Route(from, to));
    }
  }
  absl::StrAppend(&xml, "  </zone>\n</platform>\n");
  return xml;
}

}  // namespace pipewright
