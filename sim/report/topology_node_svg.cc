// The inside of a node: NVSwitch, devices, NICs, and the way to the host's
// memory over PCIe switches, roots and NUMA nodes.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "sim/report/topology_canvas.h"
#include "sim/topology/node_params.h"

namespace pipewright {
namespace {

constexpr int kMostShown = 8;  // of more devices the first ones
constexpr double kPitch = 104;
constexpr double kAside = 24;  // of a NIC and of PCIe from a device's centre
constexpr double kBoxHeight = 22;
constexpr char kDeviceFill[] = "#DCEBF7";
constexpr char kSwitchFill[] = "#F3E3D3";
constexpr char kNicFill[] = "#FFFFFF";
constexpr char kMemoryFill[] = "#E3F1EA";

// Devices first to last of a block, of those that are shown.
struct Block {
  int first;
  int last;
};

// Blocks of `devices` / `count` devices.
template <typename Visit>
void ForEachBlock(int devices, int count, int shown, const Visit& visit) {
  const int size = devices / count;
  for (int block = 0; block * size < shown; ++block) {
    visit(block, Block{block * size, std::min((block + 1) * size, shown) - 1});
  }
}

double CentreOf(int device) { return device * kPitch; }
CanvasPoint PointOf(const Block& block, double aside, double y) {
  return {(CentreOf(block.first) + CentreOf(block.last)) / 2 + aside, y};
}
double WidthOf(const Block& block) {
  return CentreOf(block.last) - CentreOf(block.first) + 48;
}

class NodeDrawing {
 public:
  explicit NodeDrawing(const ShapeParams& params)
      : params_(params),
        tree_(HostTreeOf(params)),
        devices_(params.devices_per_node),
        shown_(std::min(devices_, kMostShown)) {}

  TopologyCanvas Draw() {
    // First, so that it has its colour between nodes.
    if (params_.nodes > 1) {
      nic_kind_ = canvas_.Kind(LinkLabel("NIC to the other nodes",
                                         params_.nic.bytes_per_s,
                                         params_.nic.latency_s));
    }
    DrawDevices();
    if (params_.nodes > 1) DrawNics();
    if (params_.has_pcie()) DrawHost();
    if (shown_ < devices_) {
      canvas_.Note({-kPitch / 2, y_ + kBoxHeight / 2 + 22},
                   absl::StrCat("the first ", shown_, " of ", devices_,
                                " devices of a node"));
    }
    return canvas_;
  }

 private:
  void DrawDevices() {
    if (devices_ > 1) {
      const Block all = {0, shown_ - 1};
      const CanvasPoint bar = PointOf(all, 0, y_);
      canvas_.Box(bar, CentreOf(shown_ - 1) + 80, kBoxHeight, "NVSwitch",
                  kSwitchFill);
      y_ += 56;
      const int kind = canvas_.Kind(LinkLabel(
          "NVLink", params_.nvlink.bytes_per_s, params_.nvlink.latency_s));
      for (int device = 0; device < shown_; ++device) {
        canvas_.Line({CentreOf(device), bar.y}, {CentreOf(device), y_}, kind);
      }
    }
    device_y_ = y_;
    for (int device = 0; device < shown_; ++device) {
      canvas_.Box({CentreOf(device), y_}, 80, kBoxHeight + 4,
                  absl::StrCat("gpu", device), kDeviceFill);
    }
  }

  void DrawNics() {
    y_ += 52;
    const int nics =
        params_.nics_per_node == 0 ? devices_ : params_.nics_per_node;
    ForEachBlock(devices_, nics, shown_, [&](int nic, const Block& block) {
      // Below a device, so that its way to the host goes past it.
      const double x = CentreOf((block.first + block.last) / 2) - kAside;
      for (int device = block.first; device <= block.last; ++device) {
        canvas_.Line({CentreOf(device) - kAside, device_y_}, {x, y_}, -1);
      }
      canvas_.Line({x, y_}, {x, y_ + 24}, nic_kind_);
      canvas_.Box({x, y_}, 44, kBoxHeight, absl::StrCat("nic", nic), kNicFill);
    });
  }

  void DrawHost() {
    y_ += 52;
    const double switch_y = y_;
    const int switches = devices_ / params_.pcie_per_switch;
    const int pcie = canvas_.Kind(LinkLabel(
        "PCIe to the host", params_.pcie.bytes_per_s, params_.pcie.latency_s));
    const int root =
        tree_.has_roots()
            ? canvas_.Kind(LinkLabel("root to memory", tree_.root.bytes_per_s,
                                     tree_.root.latency_s))
            : -1;
    const double root_y = y_ + 52;
    const double memory_y = root_y + 52;
    ForEachBlock(
        devices_, switches, shown_, [&](int index, const Block& block) {
          for (int device = block.first; device <= block.last; ++device) {
            canvas_.Line({CentreOf(device) + kAside, device_y_},
                         {CentreOf(device) + kAside, switch_y}, -1);
          }
          const CanvasPoint centre = PointOf(block, kAside, switch_y);
          canvas_.Line(centre, {centre.x, root_y}, pcie);
          canvas_.Box(centre, WidthOf(block), kBoxHeight,
                      absl::StrCat("pcie", index), kSwitchFill);
        });
    ForEachBlock(devices_, tree_.roots, shown_,
                 [&](int index, const Block& block) {
                   const CanvasPoint centre = PointOf(block, kAside, root_y);
                   canvas_.Line(centre, {centre.x, memory_y}, root);
                   canvas_.Box(centre, WidthOf(block), kBoxHeight,
                               absl::StrCat("root", index), kSwitchFill);
                 });
    DrawMemory(memory_y);
    y_ = memory_y;
  }

  void DrawMemory(double y) {
    const int numa = tree_.crosses_numa()
                         ? canvas_.Kind(LinkLabel("NUMA node to the first",
                                                  tree_.numa.bytes_per_s,
                                                  tree_.numa.latency_s))
                         : -1;
    const Block first = {0, std::min(devices_ / tree_.numa_nodes, shown_) - 1};
    ForEachBlock(
        devices_, tree_.numa_nodes, shown_, [&](int index, const Block& block) {
          const CanvasPoint centre = PointOf(block, kAside, y);
          if (index > 0) {
            // Below the memories, to each of which the first is joined.
            const double low = y + 12 + 12 * index;
            const double to = PointOf(first, kAside, y).x - 5 * index;
            canvas_.Line(centre, {centre.x, low}, numa);
            canvas_.Line({centre.x, low}, {to, low}, numa);
            canvas_.Line({to, low}, {to, y}, numa);
          }
          std::string label =
              tree_.numa_nodes > 1 ? absl::StrCat("mem", index) : "memory";
          double width = std::max(WidthOf(block), 48.0);
          // One of several has no room that is not its devices'.
          constexpr double kWithBandwidth = 110;
          if (params_.host.bytes_per_s > 0 &&
              (width >= kWithBandwidth || tree_.numa_nodes == 1)) {
            width = std::max(width, kWithBandwidth);
            absl::StrAppend(&label, " ",
                            FormatBandwidth(params_.host.bytes_per_s *
                                            devices_ / tree_.numa_nodes));
          }
          canvas_.Box(centre, width, kBoxHeight, label, kMemoryFill);
        });
    if (tree_.numa_nodes > 1) y_ += 12 * tree_.numa_nodes;
  }

  const ShapeParams& params_;
  const HostTree tree_;
  const int devices_;
  const int shown_;
  TopologyCanvas canvas_;
  double y_ = 0;
  double device_y_ = 0;
  int nic_kind_ = -1;
};

}  // namespace

TopologyCanvas DrawNode(const ShapeParams& params) {
  return NodeDrawing(params).Draw();
}

}  // namespace pipewright
