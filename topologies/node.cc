// One node whose devices hang on an NVSwitch: full duplex, each device limited
// by its own links only. The switch itself does not block.
#include "absl/strings/str_cat.h"
#include "sim/base/status.h"
#include "sim/topology/layout.h"
#include "sim/topology/registry.h"

namespace pipewright::node {
namespace {

absl::StatusOr<Cluster> Build(const ShapeParams& params) {
  if (params.nodes != 1) {
    return BadValue("nodes", absl::StrCat(params.nodes),
                    "1 with shape node; see nic-switch and fat-tree");
  }
  return NodeLayout(params).Build(params, {}, nullptr);
}

const RegisterShape kRegistered({
    .name = "node",
    .summary = "one node, devices on a non-blocking NVSwitch",
    .example_nodes = 1,
    .build = Build,
});

}  // namespace
}  // namespace pipewright::node
