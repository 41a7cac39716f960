#include "sim/report/topology_svg.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "sim/base/quantity.h"
#include "sim/report/svg_parts.h"
#include "sim/topology/link_graph.h"
#include "sim/topology/node_params.h"

namespace pipewright {
namespace {

constexpr double kBoxFont = 11;
constexpr char kDeviceFill[] = "#DCEBF7";
constexpr char kSwitchFill[] = "#F3E3D3";
constexpr char kNicFill[] = "#FFFFFF";
constexpr char kMemoryFill[] = "#E3F1EA";

// Boxes and lines with the space that they take, and the legend of the links
// that they stand for. Boxes are placed by their centres.

struct CanvasPoint {
  double x = 0;
  double y = 0;
};

class TopologyCanvas {
 public:
  // A kind of links: lines of a colour of their own and an entry of the legend.
  // The same label again is the same kind.
  int Kind(const std::string& label);

  void Box(CanvasPoint centre, double width, double height,
           absl::string_view label, absl::string_view fill);
  // Lines lie below all boxes. `kind` -1: no link of its own, thin and grey.
  void Line(CanvasPoint from, CanvasPoint to, int kind, bool dashed = false);
  // Bends upwards by `rise` in its middle.
  void Arc(CanvasPoint from, CanvasPoint to, double rise, int kind);
  void Note(CanvasPoint start, absl::string_view text);

  // Draws all with its upper left corner at (left, top), the legend below in
  // the width. Returns the lower right corner.
  CanvasPoint Place(double left, double top, double least_width,
                    Svg* svg) const;

 private:
  void Cover(double x, double y);
  void Path(const std::string& path, int kind, bool dashed);
  static Paint PaintOf(int kind, double width);

  Svg lines_;
  Svg boxes_;
  std::vector<std::string> kinds_;
  bool plain_ = false;  // some line is no link
  double left_ = 1e9, top_ = 1e9, right_ = -1e9, bottom_ = -1e9;
};

Paint TopologyCanvas::PaintOf(int kind, double width) {
  if (kind < 0) return {.stroke = "#9A9A9A"};
  return {.stroke = kHues[static_cast<size_t>(kind) % kHues.size()],
          .width = width};
}

int TopologyCanvas::Kind(const std::string& label) {
  const auto found = std::find(kinds_.begin(), kinds_.end(), label);
  if (found != kinds_.end()) return static_cast<int>(found - kinds_.begin());
  kinds_.push_back(label);
  return static_cast<int>(kinds_.size()) - 1;
}

void TopologyCanvas::Cover(double x, double y) {
  left_ = std::min(left_, x);
  right_ = std::max(right_, x);
  top_ = std::min(top_, y);
  bottom_ = std::max(bottom_, y);
}

void TopologyCanvas::Box(CanvasPoint centre, double width, double height,
                         absl::string_view label, absl::string_view fill) {
  const double x = centre.x - width / 2;
  const double y = centre.y - height / 2;
  Cover(x - 1, y - 1);
  Cover(x + width + 1, y + height + 1);
  boxes_.Rect(x, y, width, height,
              {.css = "line",
               .fill = std::string(fill),
               .stroke = kInk,
               .more = " rx=\"3\""});
  boxes_.Text(centre.x, centre.y + 4, label,
              {.anchor = "middle", .size = kBoxFont});
}

void TopologyCanvas::Path(const std::string& path, int kind, bool dashed) {
  Paint paint = PaintOf(kind, 1.8);
  if (dashed) paint.dashes = "4 3";
  lines_.Path(path, paint);
  plain_ = plain_ || kind < 0;
}

void TopologyCanvas::Line(CanvasPoint from, CanvasPoint to, int kind,
                          bool dashed) {
  Cover(from.x, from.y);
  Cover(to.x, to.y);
  Path(PathOf({"M", from.x, from.y, "L", to.x, to.y}), kind, dashed);
}

void TopologyCanvas::Arc(CanvasPoint from, CanvasPoint to, double rise,
                         int kind) {
  const CanvasPoint middle = {(from.x + to.x) / 2, (from.y + to.y) / 2};
  Cover(middle.x, middle.y - rise);
  // A quadratic curve comes half as near as its control point.
  Path(PathOf({"M", from.x, from.y, "Q", middle.x, middle.y - 2 * rise, to.x,
               to.y}),
       kind, false);
}

void TopologyCanvas::Note(CanvasPoint start, absl::string_view text) {
  Cover(start.x, start.y - kBoxFont);
  Cover(start.x + TextWidth(text, kBoxFont), start.y + 4);
  boxes_.Text(start.x, start.y, text, {.size = kBoxFont});
}

CanvasPoint TopologyCanvas::Place(double left, double top, double least_width,
                                  Svg* svg) const {
  const double width = std::max(least_width, right_ - left_);
  std::vector<LegendItem> items;
  for (size_t kind = 0; kind < kinds_.size(); ++kind) {
    items.push_back(
        LegendItem::Line(kinds_[kind], PaintOf(static_cast<int>(kind), 3)));
  }
  if (plain_) {
    items.push_back(LegendItem::Line("no link of its own", PaintOf(-1, 1)));
  }
  svg->Open(absl::StrCat("transform=\"translate(", Px(left - left_), " ",
                         Px(top - top_), ")\""));
  svg->Add(lines_);
  svg->Add(boxes_);
  svg->Close();
  const double bottom = top + bottom_ - top_ + 14;
  return {left + width,
          items.empty() ? bottom : svg->Legend(items, left, bottom, width)};
}

// "nvlink: 450 GBps, 300 ns".
std::string LinkLabel(absl::string_view name, double bytes_per_s,
                      double latency_s) {
  return absl::StrCat(name, ": ", FormatBandwidth(bytes_per_s), ", ",
                      FormatSeconds(latency_s));
}

// Inside of a node: NVSwitch, devices, NICs, and the way to the host's memory
// over PCIe switches, roots and NUMA nodes.

constexpr int kMostShown = 8;  // of more devices the first ones
constexpr double kPitch = 104;
constexpr double kAside = 24;  // of a NIC and of PCIe from a device's centre
constexpr double kBoxHeight = 22;

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
    if (params_.has_nvlink()) {
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
    const int numa = tree_.has_numa_links()
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

constexpr double kTopologyMargin = 20;
constexpr double kLeastWidth = 640;
constexpr double kNodeBox = 56;
constexpr double kNodePitch = 68;
constexpr double kLevel = 84;
constexpr double kBetween = 14;
constexpr double kGridStep = 100;  // of a shape that places its nodes

// "torus x" of "node3/nic0/torus-x-up": without numbers, ends and the node.
std::string KindName(absl::string_view link) {
  std::string name;
  for (const char letter : link) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(letter))) {
      name.push_back(letter);
    }
  }
  absl::string_view kind = name;
  absl::ConsumePrefix(&kind, "node/");
  for (const char* end : {"/up", "/down", "-up", "-down"}) {
    if (absl::ConsumeSuffix(&kind, end)) break;
  }
  return absl::StrReplaceAll(kind, {{"/", " "}, {"-", " "}});
}

class NetworkDrawing {
 public:
  explicit NetworkDrawing(const TopologyPicture& picture)
      : params_(picture.params),
        cluster_(*picture.cluster),
        graph_(GraphOf(cluster_)),
        heights_(graph_.Heights()),
        points_(graph_.vertices) {}

  TopologyCanvas Draw() {
    NameSwitches();
    PlaceVertices();
    DrawEdges();
    DrawVertices();
    return canvas_;
  }

 private:
  // All links that a line stands for.
  struct Cable {
    int one = 0;
    int other = 0;
    std::string kind;
    double bytes_per_s = 0;
    double latency_s = 0;

    friend bool operator<(const Cable& left, const Cable& right) {
      return std::tie(left.kind, left.bytes_per_s, left.latency_s, left.one,
                      left.other) < std::tie(right.kind, right.bytes_per_s,
                                             right.latency_s, right.one,
                                             right.other);
    }
  };

  // A switch is called as its links upwards, or as those to its like.
  void NameSwitches() {
    names_.resize(graph_.vertices);
    for (int node = 0; node < graph_.nodes; ++node) {
      names_[node] = absl::StrCat("node", node);
    }
    for (const LinkGraph::Edge& edge : graph_.edges) {
      if (edge.from < graph_.nodes) continue;
      if (heights_[edge.to] < heights_[edge.from]) continue;
      const std::string& link = cluster_.links()[edge.link].name;
      names_[edge.from] = link.substr(0, link.rfind('/'));
    }
    for (int vertex = graph_.nodes; vertex < graph_.vertices; ++vertex) {
      if (!names_[vertex].empty()) continue;
      names_[vertex] = heights_[vertex] == 1   ? "switch"
                       : heights_[vertex] == 2 ? "spines"
                                               : "core";
    }
  }

  double WidthOf(int vertex) const {
    return vertex < graph_.nodes ? kNodeBox
                                 : TextWidth(names_[vertex], 11) + 12;
  }

  void PlaceVertices() {
    const ShapeInfo* const shape = FindShape(params_.shape);
    // So wide that the fullest level of switches fits above.
    std::map<int, double> width_of_level;
    double pitch = kNodePitch;
    for (int vertex = graph_.nodes; vertex < graph_.vertices; ++vertex) {
      double& width = width_of_level[heights_[vertex]];
      width += WidthOf(vertex) + kBetween;
      pitch = std::max(pitch, width / graph_.nodes);
    }
    for (int node = 0; node < graph_.nodes; ++node) {
      points_[node] = {node * pitch, 0};
      if (shape->place == nullptr) continue;
      const auto [x, y] = shape->place(params_, node);
      points_[node] = {x * kGridStep, y * kGridStep};
    }
    const int highest = *std::max_element(heights_.begin(), heights_.end());
    for (int height = 1; height <= highest; ++height) PlaceLevel(height);
  }

  // Each switch above the middle of what hangs on it; those above the same
  // stand side by side.
  void PlaceLevel(int height) {
    std::map<int, std::pair<double, int>> below;
    for (const LinkGraph::Edge& edge : graph_.edges) {
      for (const auto& [upper, lower] :
           {std::pair(edge.from, edge.to), std::pair(edge.to, edge.from)}) {
        if (heights_[upper] != height || heights_[lower] != height - 1)
          continue;
        below[upper].first += points_[lower].x;
        ++below[upper].second;
      }
    }
    std::map<double, std::vector<int>> blocks;  // by the place that is wished
    for (const auto& [vertex, sum] : below) {
      blocks[std::round(sum.first / sum.second)].push_back(vertex);
    }
    double free = -std::numeric_limits<double>::infinity();
    double shift = 0;
    for (const auto& [wished, block] : blocks) {
      double width = -kBetween;
      for (const int vertex : block) width += WidthOf(vertex) + kBetween;
      double x = std::max(wished - width / 2, free);
      shift += (x - (wished - width / 2)) / static_cast<double>(blocks.size());
      for (const int vertex : block) {
        points_[vertex] = {x + WidthOf(vertex) / 2, -kLevel * height};
        x += WidthOf(vertex) + kBetween;
      }
      free = x + kBetween;
    }
    for (const auto& [vertex, sum] : below) points_[vertex].x -= shift;
  }

  void DrawEdges() {
    std::map<Cable, int> cables;  // links of each, one way
    for (const LinkGraph::Edge& edge : graph_.edges) {
      const Link& link = cluster_.links()[edge.link];
      ++cables[{std::min(edge.from, edge.to), std::max(edge.from, edge.to),
                KindName(link.name), link.bytes_per_s, link.latency_s}];
    }
    std::map<std::string, int> side_by_side;
    std::map<std::string, double> shortest;
    for (const auto& [cable, links] : cables) {
      int& most = side_by_side[cable.kind];
      most = std::max(most, (links + 1) / 2);
      double& least = shortest.emplace(cable.kind, 1e9).first->second;
      least = std::min(least, Distance(cable));
    }
    // From the nodes upwards, as the legend has them.
    std::vector<std::pair<Cable, int>> upwards(cables.begin(), cables.end());
    const auto lower = [&](const Cable& cable) {
      return std::min(heights_[cable.one], heights_[cable.other]);
    };
    std::stable_sort(upwards.begin(), upwards.end(),
                     [&](const auto& left, const auto& right) {
                       return lower(left.first) < lower(right.first);
                     });
    for (const auto& [cable, links] : upwards) {
      std::string label =
          LinkLabel(cable.kind, cable.bytes_per_s, cable.latency_s);
      if (side_by_side[cable.kind] > 1) {
        absl::StrAppend(&label, ", ", side_by_side[cable.kind],
                        " side by side");
      }
      DrawCable(cable, canvas_.Kind(label),
                Distance(cable) > 1.5 * shortest[cable.kind]);
    }
  }

  double Distance(const Cable& cable) const {
    return std::hypot(points_[cable.one].x - points_[cable.other].x,
                      points_[cable.one].y - points_[cable.other].y);
  }

  void DrawCable(const Cable& cable, int kind, bool far) {
    const CanvasPoint one = points_[cable.one];
    const CanvasPoint other = points_[cable.other];
    if (heights_[cable.one] != heights_[cable.other]) {
      canvas_.Line(one, other, kind);
    } else if (cable.one >= graph_.nodes) {
      const double apart = std::abs(one.x - other.x);
      canvas_.Arc({one.x, one.y - 10}, {other.x, other.y - 10},
                  10 + 0.13 * apart, kind);
    } else if (far) {
      // Round to the other end: a stub at each, away from the other.
      const double length = Distance(cable);
      const CanvasPoint stub = {(one.x - other.x) / length * 34,
                                (one.y - other.y) / length * 30};
      canvas_.Line(one, {one.x + stub.x, one.y + stub.y}, kind, true);
      canvas_.Line(other, {other.x - stub.x, other.y - stub.y}, kind, true);
      round_ = true;
    } else {
      canvas_.Line(one, other, kind);
    }
  }

  void DrawVertices() {
    const bool grid = FindShape(params_.shape)->place != nullptr;
    double lowest = 0;
    double leftmost = 0;
    for (int vertex = 0; vertex < graph_.vertices; ++vertex) {
      const bool is_node = vertex < graph_.nodes;
      canvas_.Box(points_[vertex], grid ? 30 : WidthOf(vertex), grid ? 18 : 22,
                  grid ? absl::StrCat(vertex) : names_[vertex],
                  is_node ? kDeviceFill : kSwitchFill);
      lowest = std::max(lowest, points_[vertex].y);
      leftmost = std::min(leftmost, points_[vertex].x);
    }
    if (round_) {
      canvas_.Note({leftmost - 15, lowest + 52},
                   "numbers: nodes; dashed: round to the other end");
    }
  }

  const ShapeParams& params_;
  const Cluster& cluster_;
  const LinkGraph graph_;
  const std::vector<int> heights_;
  std::vector<CanvasPoint> points_;
  std::vector<std::string> names_;
  TopologyCanvas canvas_;
  bool round_ = false;
};

}  // namespace

std::string TopologySvg(const std::vector<TopologyPicture>& pictures) {
  Svg svg;
  double y = kTopologyMargin;
  double width = kLeastWidth + 2 * kTopologyMargin;
  for (const TopologyPicture& picture : pictures) {
    svg.Heading(kTopologyMargin, y + 12, picture.title);
    width = std::max(width,
                     TextWidth(picture.title, 15) * 1.1 + 2 * kTopologyMargin);
    y += 34;
    const auto add = [&](absl::string_view heading,
                         const TopologyCanvas& canvas) {
      svg.Text(kTopologyMargin, y + 8, heading);
      const CanvasPoint corner =
          canvas.Place(kTopologyMargin, y + 22, kLeastWidth, &svg);
      width = std::max(width, corner.x + kTopologyMargin);
      y = corner.y + 12;
    };
    if (picture.params.nodes > 1) {
      add("Between nodes", NetworkDrawing(picture).Draw());
    }
    add("Inside a node", NodeDrawing(picture.params).Draw());
    y += 20;
  }
  return svg.Finish(width, y,
                    pictures.size() == 1 ? pictures[0].title : "Topologies");
}

}  // namespace pipewright
