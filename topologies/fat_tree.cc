// Two or three levels: nodes_per_leaf nodes on a leaf switch, leaves_per_pod
// leaves joined by the spines of a pod, pods joined by core switches.
//
// All uplinks of a leaf are one trunk each way, as if traffic spread evenly
// over the spines (adaptive routing); collisions of a static hash are not
// modelled. Its bandwidth is that of the NICs below it divided by
// oversubscription, for a last leaf that is not full as well. Its latency is
// that of the nic class, being one more cable and switch. All uplinks of a
// pod's spines are a trunk of the same kind: the bandwidth of its leaves'
// uplinks divided by pod_oversubscription. Inside a node and between node and
// leaf it is as nic-switch. A k-ary fat-tree (Al-Fares et al., SIGCOMM 2008)
// has k/2 nodes a leaf, k/2 leaves a pod and k pods.
#include <utility>

#include "absl/strings/str_cat.h"
#include "sim/topology/layout.h"
#include "sim/topology/registry.h"

namespace pipewright::fat_tree {
namespace {

constexpr char kNodesPerLeaf[] = "nodes_per_leaf";
constexpr char kOversubscription[] = "oversubscription";
constexpr char kLeavesPerPod[] = "leaves_per_pod";
constexpr char kPodOversubscription[] = "pod_oversubscription";

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
  const LinkId first_pod = first + static_cast<LinkId>(fabric.size());
  const int leaves_per_pod = params.OwnInt(kLeavesPerPod);
  const int pods = (leaves - 1) / leaves_per_pod + 1;
  const double pod_trunk =
      trunk * leaves_per_pod / params.OwnReal(kPodOversubscription);
  for (int pod = 0; pods > 1 && pod < pods; ++pod) {
    const std::string name = absl::StrCat("pod", pod);
    fabric.push_back({name + "/up", pod_trunk, params.nic.latency_s});
    fabric.push_back({name + "/down", pod_trunk, params.nic.latency_s});
  }
  return layout.Build(
      params, std::move(fabric),
      [layout, nodes_per_leaf, leaves_per_pod, first, first_pod](
          int from, int to, std::vector<LinkId>* links) {
        const int from_leaf = layout.NodeOf(from) / nodes_per_leaf;
        const int to_leaf = layout.NodeOf(to) / nodes_per_leaf;
        const int from_pod = from_leaf / leaves_per_pod;
        const int to_pod = to_leaf / leaves_per_pod;
        links->push_back(layout.NicUp(from));
        if (from_leaf != to_leaf) links->push_back(first + from_leaf * 2);
        if (from_pod != to_pod) {
          links->push_back(first_pod + from_pod * 2);
          links->push_back(first_pod + to_pod * 2 + 1);
        }
        if (from_leaf != to_leaf) links->push_back(first + to_leaf * 2 + 1);
        links->push_back(layout.NicDown(to));
      });
}

const RegisterShape kRegistered({
    .name = "fat-tree",
    .summary = "two or three levels of switches, oversubscribed at each",
    .params = {{.key = kNodesPerLeaf,
                .most = kMostClusterDevices,
                .help = "nodes below one leaf switch",
                .links = "leaf"},
               {.key = kOversubscription,
                .kind = ShapeParam::Kind::kNumber,
                .most = 1e6,
                .fallback = "1",
                .help = "bandwidth of a leaf's NICs over that of its uplinks",
                .links = "leaf"},
               {.key = kLeavesPerPod,
                .most = kMostClusterDevices,
                .fallback = "1048576",
                .help = "leaves below the spines of one pod; with fewer than "
                        "all there is a third level",
                .links = "pod"},
               {.key = kPodOversubscription,
                .kind = ShapeParam::Kind::kNumber,
                .most = 1e6,
                .fallback = "1",
                .help = "bandwidth of a pod's leaf uplinks over that of its "
                        "uplinks to the core",
                .links = "pod"}},
    .example_nodes = 8,
    .example = {{kNodesPerLeaf, "2"},
                {kOversubscription, "2"},
                {kLeavesPerPod, "2"},
                {kPodOversubscription, "2"}},
    .build = Build,
});

}  // namespace
}  // namespace pipewright::fat_tree
