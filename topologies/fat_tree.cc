// Two levels: nodes_per_leaf nodes on a leaf switch, leaves joined by spines.
//
// All uplinks of a leaf are one trunk each way, as if traffic spread evenly
// over the spines (adaptive routing); collisions of a static hash are not
// modelled. Its bandwidth is that of the NICs below it divided by
// oversubscription, for a last leaf that is not full as well. Its latency is
// that of the nic class, being one more cable and switch. Inside a node and
// between node and leaf it is as nic-switch.
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/topology/layout.h"
#include "sim/topology/registry.h"

namespace pipewright {
namespace {

constexpr char kNodesPerLeaf[] = "nodes_per_leaf";
constexpr char kOversubscription[] = "oversubscription";

absl::StatusOr<Cluster> Build(const ShapeParams& params) {
  const NodeLayout layout(params);
  const int nodes_per_leaf = params.OwnInt(kNodesPerLeaf);
  const int leaves = (params.nodes - 1) / nodes_per_leaf + 1;
  const double trunk = params.nic.bytes_per_s * nodes_per_leaf * layout.nics() /
                       params.OwnReal(kOversubscription);
  std::vector<Link> fabric;
  // With one leaf the spines carry nothing.
  for (int leaf = 0; leaves > 1 && leaf < leaves; ++leaf) {
    const std::string name = absl::StrCat("leaf", leaf);
    fabric.push_back({name + "/up", trunk, params.nic.latency_s});
    fabric.push_back({name + "/down", trunk, params.nic.latency_s});
  }
  const LinkId first = layout.num_links();
  return layout.Build(params, std::move(fabric),
                      [layout, nodes_per_leaf, first](
                          int from, int to, std::vector<LinkId>* links) {
                        const int from_leaf =
                            layout.NodeOf(from) / nodes_per_leaf;
                        const int to_leaf = layout.NodeOf(to) / nodes_per_leaf;
                        links->push_back(layout.NicUp(from));
                        if (from_leaf != to_leaf) {
                          links->push_back(first + from_leaf * 2);
                          links->push_back(first + to_leaf * 2 + 1);
                        }
                        links->push_back(layout.NicDown(to));
                      });
}

const RegisterShape kRegistered({
    .name = "fat-tree",
    .summary = "two levels of switches, leaves may be oversubscribed",
    .params = {{.key = kNodesPerLeaf,
                .most = kMostClusterDevices,
                .help = "nodes below one leaf switch",
                .links = "leaf"},
               {.key = kOversubscription,
                .kind = ShapeParam::Kind::kNumber,
                .most = 1e6,
                .fallback = "1",
                .help = "bandwidth of a leaf's NICs over that of its uplinks",
                .links = "leaf"}},
    .build = Build,
});

}  // namespace
}  // namespace pipewright
