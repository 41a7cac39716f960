// Sites of nodes_per_site nodes, each with all its NICs on one non-blocking
// switch, and between every two sites a link of its own each way.
//
// The link between two sites has the bandwidth and the latency that are given:
// its latency is the one-way time of the fibre and all that stands on it,
// beside that of the NICs at both ends. Messages share it fairly; packet loss
// and the windows of long transfers are not modelled.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/topology/layout.h"
#include "sim/topology/registry.h"

namespace pipewright::multi_site {
namespace {

constexpr char kNodesPerSite[] = "nodes_per_site";
constexpr char kSiteBandwidth[] = "site_bandwidth";
constexpr char kSiteLatency[] = "site_latency";
// Links between all of them are a million.
constexpr int kMostSites = 1024;

absl::StatusOr<Cluster> Build(const ShapeParams& params) {
  const NodeLayout layout(params);
  const int nodes_per_site = params.OwnInt(kNodesPerSite);
  const int sites = (params.nodes - 1) / nodes_per_site + 1;
  if (sites > kMostSites) {
    return BadValue(
        absl::StrCat("params.", kNodesPerSite), absl::StrCat(nodes_per_site),
        absl::StrCat((params.nodes - 1) / kMostSites + 1,
                     " or more: ", params.nodes, " nodes stand in at most ",
                     kMostSites, " sites"));
  }
  std::vector<Link> fabric;
  for (int from = 0; from < sites; ++from) {
    for (int to = 0; to < sites; ++to) {
      if (from == to) continue;
      fabric.push_back({absl::StrCat("site", from, "/to-site", to),
                        params.OwnBandwidth(kSiteBandwidth),
                        params.OwnSeconds(kSiteLatency)});
    }
  }
  const LinkId first = layout.num_links();
  return layout.Build(
      params, std::move(fabric),
      [layout, nodes_per_site, sites, first](int from, int to,
                                             std::vector<LinkId>* links) {
        const int from_site = layout.NodeOf(from) / nodes_per_site;
        const int to_site = layout.NodeOf(to) / nodes_per_site;
        links->push_back(layout.NicUp(from));
        if (from_site != to_site) {
          links->push_back(first + from_site * (sites - 1) +
                           (to_site < from_site ? to_site : to_site - 1));
        }
        links->push_back(layout.NicDown(to));
      });
}

const RegisterShape kRegistered({
    .name = "multi-site",
    .summary = "sites with a switch each, joined by links of their own",
    .params = {{.key = kNodesPerSite,
                .most = kMostClusterDevices,
                .help = "nodes of one site",
                .links = "site"},
               {.key = kSiteBandwidth,
                .kind = ShapeParam::Kind::kBandwidth,
                .help = "between two sites, one direction",
                .links = "site"},
               {.key = kSiteLatency,
                .kind = ShapeParam::Kind::kTime,
                .least = 0,
                .help = "between two sites, one way",
                .links = "site"}},
    .example_nodes = 4,
    .example = {{kNodesPerSite, "2"},
                {kSiteBandwidth, "100Gbps"},
                {kSiteLatency, "5ms"}},
    .build = Build,
});

}  // namespace
}  // namespace pipewright::multi_site
