#include "sim/topology/node_params.h"

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

constexpr char kAlone[] = "pcie_alone_factor";
constexpr char kRoots[] = "pcie_roots";
constexpr char kRootBandwidth[] = "root_bandwidth";
constexpr char kRootLatency[] = "root_latency";
constexpr char kNumaNodes[] = "numa_nodes";
constexpr char kNumaBandwidth[] = "numa_bandwidth";
constexpr char kNumaLatency[] = "numa_latency";
constexpr char kHostNuma[] = "host_numa";
constexpr char kFirst[] = "first";
constexpr char kThroughHost[] = "host";
constexpr char kSwitch[] = "switch";
constexpr char kNode[] = "node";
constexpr int kMostRoots = 1024;

absl::Status CheckBlocks(const char* key, int value, absl::string_view of,
                         int whole) {
  if (value <= whole && whole % value == 0) return absl::OkStatus();
  return BadValue(
      absl::StrCat("params.", key), absl::StrCat(value),
      absl::StrCat("1 to ", whole, ", a divisor of ", of, " (", whole, ")"));
}

}  // namespace

const std::vector<ShapeParam>& NodeParams() {
  using Kind = ShapeParam::Kind;
  static const auto* const params = new std::vector<ShapeParam>{
      {.key = kAlone,
       .kind = Kind::kNumber,
       .least = 1,
       .most = 2,
       .fallback = "1",
       .help = "how many times faster a PCIe switch copies to the host while "
               "it copies nothing the other way; with both, each has "
               "system.pcie.bandwidth",
       .links = "pcie"},
      {.key = kRoots,
       .most = kMostRoots,
       .fallback = "1",
       .help = "PCIe roots of a host, each with a block of PCIe switches",
       .links = "root"},
      {.key = kRootBandwidth,
       .kind = Kind::kBandwidth,
       .least = 0,
       .fallback = "0GBps",
       .help = "of a root, one direction; 0: copies do not meet at a root",
       .links = "root"},
      {.key = kRootLatency,
       .kind = Kind::kTime,
       .least = 0,
       .fallback = "0s",
       .help = "of that link alone",
       .links = "root"},
      {.key = kNumaNodes,
       .most = kMostRoots,
       .fallback = "1",
       .help = "NUMA nodes of a host, each with a block of the roots",
       .links = "numa"},
      {.key = kNumaBandwidth,
       .kind = Kind::kBandwidth,
       .least = 0,
       .fallback = "0GBps",
       .help = "between another NUMA node and the first, one direction",
       .links = "numa"},
      {.key = kNumaLatency,
       .kind = Kind::kTime,
       .least = 0,
       .fallback = "0s",
       .help = "of that link alone",
       .links = "numa"},
      {.key = kHostNuma,
       .kind = Kind::kChoice,
       .choices = {"local", kFirst},
       .fallback = "local",
       .help = "copies lie on the NUMA node of their device, or on the first",
       .links = "numa"},
      {.key = kNetworkStaging,
       .kind = Kind::kChoice,
       .choices = {"none", kThroughHost},
       .fallback = "none",
       .help = "messages between nodes go by way of the host's memory, or NICs "
               "read and write devices (GPUDirect)",
       .links = "pcie"},
      {.key = kPciePeers,
       .kind = Kind::kChoice,
       .choices = {"none", kSwitch, kNode},
       .fallback = "none",
       .help = "without NVLink: devices that read each other's memory: none, "
               "those of a PCIe switch, or all of a node; messages to others "
               "go by way of the host's memory",
       .links = "pcie"}};
  return *params;
}

HostTree HostTreeOf(const ShapeParams& params) {
  const std::string& peers = params.OwnChoice(kPciePeers);
  return {
      .alone_factor = params.OwnReal(kAlone),
      .roots = params.OwnInt(kRoots),
      .root = {params.OwnBandwidth(kRootBandwidth),
               params.OwnSeconds(kRootLatency), ""},
      .numa_nodes = params.OwnInt(kNumaNodes),
      .numa = {params.OwnBandwidth(kNumaBandwidth),
               params.OwnSeconds(kNumaLatency), ""},
      .on_first = params.OwnChoice(kHostNuma) == kFirst,
      .stages_messages = params.OwnChoice(kNetworkStaging) == kThroughHost,
      .talks_over_pcie = params.devices_per_node > 1 && !params.has_nvlink(),
      .peers = peers == kNode     ? HostTree::Peers::kNode
               : peers == kSwitch ? HostTree::Peers::kSwitch
                                  : HostTree::Peers::kNone};
}

absl::Status CheckHostTree(const ShapeParams& params) {
  const HostTree tree = HostTreeOf(params);
  PW_RETURN_IF_ERROR(
      CheckBlocks(kRoots, tree.roots, "the PCIe switches of a node",
                  params.devices_per_node / params.pcie_per_switch));
  PW_RETURN_IF_ERROR(CheckBlocks(kNumaNodes, tree.numa_nodes,
                                 "params.pcie_roots", tree.roots));
  if (tree.crosses_numa() && tree.numa.bytes_per_s <= 0) {
    return MissingValue(absl::StrCat("params.", kNumaBandwidth),
                        "a bandwidth above 0, since params.host_numa is first");
  }
  if (tree.stages_messages && !params.has_pcie()) {
    return BadValue(absl::StrCat("params.", kNetworkStaging), kThroughHost,
                    "none without PCIe (system.pcie.bandwidth), which messages "
                    "would cross");
  }
  return absl::OkStatus();
}

}  // namespace pipewright
