// Dragonfly+ (Shpiner et al., "Dragonfly+: Low Cost Topology for Scaling
// Datacenters", HiPINEB 2017): groups of leaves and spines, every leaf joined
// to every spine of its group, every two groups joined by global links between
// their spines.
//
// Routes are minimal: at most leaf, spine, spine, leaf. All cables from a leaf
// to the spines are one trunk each way, and so are all from one group to
// another, as if traffic spread evenly over them (adaptive routing inside a
// minimal way; the longer ways over a third group are not taken). A leaf's
// trunk has the bandwidth of its NICs divided by oversubscription; the global
// links of a group together have that of its leaves' uplinks divided by
// global_oversubscription, in equal parts for all other groups. Each hop has
// the latency of the nic class.
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/topology/layout.h"
#include "sim/topology/registry.h"

namespace pipewright::dragonfly_plus {
namespace {

constexpr char kNodesPerLeaf[] = "nodes_per_leaf";
constexpr char kLeavesPerGroup[] = "leaves_per_group";
constexpr char kOversubscription[] = "oversubscription";
constexpr char kGlobalOversubscription[] = "global_oversubscription";
// Links between all of them are a million.
constexpr int kMostGroups = 1024;

// Place of a link among those from a group to all others, in order of their
// numbers.
int PlaceOf(int from_group, int to_group) {
  return to_group < from_group ? to_group : to_group - 1;
}

absl::StatusOr<Cluster> Build(const ShapeParams& params) {
  const NodeLayout layout(params);
  const int nodes_per_leaf = params.OwnInt(kNodesPerLeaf);
  const int leaves_per_group = params.OwnInt(kLeavesPerGroup);
  const int leaves = (params.nodes - 1) / nodes_per_leaf + 1;
  const int groups = (leaves - 1) / leaves_per_group + 1;
  if (groups > kMostGroups) {
    return BadValue(
        absl::StrCat("params.", kLeavesPerGroup),
        absl::StrCat(leaves_per_group),
        absl::StrCat((leaves - 1) / kMostGroups + 1, " or more: ", leaves,
                     " leaves make at most ", kMostGroups, " groups"));
  }
  const double trunk = params.nic.bytes_per_s * nodes_per_leaf * layout.nics() /
                       params.OwnReal(kOversubscription);
  std::vector<Link> fabric;
  for (int leaf = 0; leaves > 1 && leaf < leaves; ++leaf) {
    const std::string name = absl::StrCat("leaf", leaf);
    fabric.push_back({name + "/up", trunk, params.nic.latency_s});
    fabric.push_back({name + "/down", trunk, params.nic.latency_s});
  }
  const LinkId first = layout.num_links();
  const LinkId first_global = first + static_cast<LinkId>(fabric.size());
  const double global = trunk * leaves_per_group /
                        params.OwnReal(kGlobalOversubscription) / (groups - 1);
  for (int from = 0; from < groups; ++from) {
    for (int to = 0; to < groups; ++to) {
      if (from == to) continue;
      fabric.push_back({absl::StrCat("group", from, "/to-group", to), global,
                        params.nic.latency_s});
    }
  }
  return layout.Build(
      params, std::move(fabric),
      [layout, nodes_per_leaf, leaves_per_group, groups, first, first_global](
          int from, int to, std::vector<LinkId>* links) {
        const int from_leaf = layout.NodeOf(from) / nodes_per_leaf;
        const int to_leaf = layout.NodeOf(to) / nodes_per_leaf;
        const int from_group = from_leaf / leaves_per_group;
        const int to_group = to_leaf / leaves_per_group;
        links->push_back(layout.NicUp(from));
        if (from_leaf != to_leaf) links->push_back(first + from_leaf * 2);
        if (from_group != to_group) {
          links->push_back(first_global + from_group * (groups - 1) +
                           PlaceOf(from_group, to_group));
        }
        if (from_leaf != to_leaf) links->push_back(first + to_leaf * 2 + 1);
        links->push_back(layout.NicDown(to));
      });
}

const RegisterShape kRegistered({
    .name = "dragonfly-plus",
    .summary = "groups of leaves and spines, every two groups joined",
    .params = {{.key = kNodesPerLeaf,
                .most = kMostClusterDevices,
                .help = "nodes below one leaf switch",
                .links = "leaf"},
               {.key = kLeavesPerGroup,
                .most = kMostClusterDevices,
                .fallback = "8",
                .help = "leaves of one group",
                .links = "group"},
               {.key = kOversubscription,
                .kind = ShapeParam::Kind::kNumber,
                .most = 1e6,
                .fallback = "1",
                .help = "bandwidth of a leaf's NICs over that of its uplinks",
                .links = "leaf"},
               {.key = kGlobalOversubscription,
                .kind = ShapeParam::Kind::kNumber,
                .most = 1e6,
                .fallback = "1",
                .help = "bandwidth of a group's leaf uplinks over that of its "
                        "links to all other groups",
                .links = "group"}},
    .example_nodes = 8,
    .example = {{kNodesPerLeaf, "1"}, {kLeavesPerGroup, "2"}},
    .build = Build,
});

}  // namespace
}  // namespace pipewright::dragonfly_plus
