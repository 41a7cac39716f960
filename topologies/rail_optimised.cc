// Rail-optimised: NIC k of every node of a unit hangs on leaf switch k of that
// unit (its rail), and spines join all leaves (NVIDIA DGX SuperPOD reference
// architecture: scalable units of 32 nodes, eight leaves each).
//
// A leaf's uplinks are one trunk each way, the bandwidth of the NICs below it
// divided by oversubscription. A message to another rail goes over the spines,
// or first over NVLink to the device of the same node whose NIC is on that
// rail, as NCCL does (PXN, NCCL 2.12: "combining NVLink and network
// communication").
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "sim/topology/layout.h"
#include "sim/topology/registry.h"

namespace pipewright::rail_optimised {
namespace {

constexpr char kNodesPerUnit[] = "nodes_per_unit";
constexpr char kOversubscription[] = "oversubscription";
constexpr char kCrossRail[] = "cross_rail";
constexpr char kNvlink[] = "nvlink";

absl::StatusOr<Cluster> Build(const ShapeParams& params) {
  const NodeLayout layout(params);
  const int nodes_per_unit = params.OwnInt(kNodesPerUnit);
  const int units = (params.nodes - 1) / nodes_per_unit + 1;
  const int rails = layout.nics();
  const bool over_nvlink =
      params.OwnChoice(kCrossRail) == kNvlink && layout.has_nvlink();
  const double trunk = params.nic.bytes_per_s * nodes_per_unit /
                       params.OwnReal(kOversubscription);
  // One unit needs no spines where nothing goes from rail to rail over them.
  const bool spines =
      units > 1 || (rails > 1 && params.nodes > 1 && !over_nvlink);
  std::vector<Link> fabric;
  for (int leaf = 0; spines && leaf < units * rails; ++leaf) {
    const std::string name =
        absl::StrCat("unit", leaf / rails, "/rail", leaf % rails);
    fabric.push_back({name + "/up", trunk, params.nic.latency_s});
    fabric.push_back({name + "/down", trunk, params.nic.latency_s});
  }
  const LinkId first = layout.num_links();
  return layout.Build(
      params, std::move(fabric),
      [layout, nodes_per_unit, rails, over_nvlink, first](
          int from, int to, std::vector<LinkId>* links) {
        int sender = from;
        if (over_nvlink && layout.NicOf(from) != layout.NicOf(to)) {
          // The device of the node with the place of the receiver.
          sender += to % layout.devices() - from % layout.devices();
          links->push_back(layout.NvlinkUp(from));
          links->push_back(layout.NvlinkDown(sender));
        }
        const auto leaf_of = [&](int device) {
          return layout.NodeOf(device) / nodes_per_unit * rails +
                 layout.NicOf(device);
        };
        links->push_back(layout.NicUp(sender));
        if (leaf_of(sender) != leaf_of(to)) {
          links->push_back(first + leaf_of(sender) * 2);
          links->push_back(first + leaf_of(to) * 2 + 1);
        }
        links->push_back(layout.NicDown(to));
      });
}

const RegisterShape kRegistered({
    .name = "rail-optimised",
    .summary =
        "NIC k of each node of a unit on leaf k, leaves joined by spines",
    .params = {{.key = kNodesPerUnit,
                .most = kMostClusterDevices,
                .fallback = "32",
                .help = "nodes of a unit, which share a leaf for each NIC",
                .links = "rail"},
               {.key = kOversubscription,
                .kind = ShapeParam::Kind::kNumber,
                .most = 1e6,
                .fallback = "1",
                .help = "bandwidth of a leaf's NICs over that of its uplinks",
                .links = "rail"},
               {.key = kCrossRail,
                .kind = ShapeParam::Kind::kChoice,
                .choices = {kNvlink, "spine"},
                .fallback = kNvlink,
                .help = "way to another rail: to a device of the node on that "
                        "rail first, or over the spines"}},
    .example_nodes = 4,
    .example = {{kNodesPerUnit, "2"}},
    .build = Build,
});

}  // namespace
}  // namespace pipewright::rail_optimised
