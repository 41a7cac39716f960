// Nodes with an NVSwitch inside, whose NICs all hang on one non-blocking
// switch.
//
// A message between nodes crosses the sender's NIC and the receiver's. NVLink
// is not on its way: with GPUDirect RDMA the NIC reads device memory through
// the PCIe switch that it shares with the device. The PCIe hop is not a link
// of its own, since a NIC is slower than its slot; it is not shared with the
// traffic to the host either.
#include "sim/topology/layout.h"
#include "sim/topology/registry.h"

namespace pipewright::nic_switch {
namespace {

absl::StatusOr<Cluster> Build(const ShapeParams& params) {
  const NodeLayout layout(params);
  return layout.Build(params, {},
                      [layout](int from, int to, std::vector<LinkId>* links) {
                        links->push_back(layout.NicUp(from));
                        links->push_back(layout.NicDown(to));
                      });
}

const RegisterShape kRegistered({
    .name = "nic-switch",
    .summary = "nodes whose NICs share one non-blocking switch",
    .build = Build,
});

}  // namespace
}  // namespace pipewright::nic_switch
