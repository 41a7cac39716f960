#include "sim/report/topology_svg.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "sim/report/format.h"
#include "sim/report/svg_parts.h"
#include "sim/report/topology_canvas.h"
#include "sim/topology/link_graph.h"

namespace pipewright {
namespace {

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
      canvas_.Dashes(one, {one.x + stub.x, one.y + stub.y}, kind);
      canvas_.Dashes(other, {other.x - stub.x, other.y - stub.y}, kind);
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
                  is_node ? "#DCEBF7" : "#F3E3D3");
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

std::string Heading(const std::string& text, double y, int font, bool bold) {
  return absl::StrCat("<text class=\"ink\" x=\"", Px(kTopologyMargin),
                      "\" y=\"", Px(y), "\" font-size=\"", font,
                      bold ? "\" font-weight=\"bold" : "",
                      "\" fill=\"#1A1A1A\">", EscapeXml(text), "</text>\n");
}

}  // namespace

std::string TopologySvg(const std::vector<TopologyPicture>& pictures) {
  std::string body;
  double y = kTopologyMargin;
  double width = kLeastWidth + 2 * kTopologyMargin;
  for (const TopologyPicture& picture : pictures) {
    absl::StrAppend(&body, Heading(picture.title, y + 12, 15, true));
    width = std::max(width,
                     TextWidth(picture.title, 15) * 1.1 + 2 * kTopologyMargin);
    y += 34;
    const auto add = [&](const std::string& heading,
                         const TopologyCanvas& canvas) {
      absl::StrAppend(&body, Heading(heading, y + 8, 12, false));
      double right = 0;
      absl::StrAppend(&body, canvas.Place(kTopologyMargin, y + 22, kLeastWidth,
                                          &right, &y));
      width = std::max(width, right + kTopologyMargin);
      y += 12;
    };
    if (picture.params.nodes > 1) {
      add("Between nodes", NetworkDrawing(picture).Draw());
    }
    add("Inside a node", DrawNode(picture.params));
    y += 20;
  }
  return absl::StrCat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 ", Px(width),
      " ", Px(y), "\" width=\"", Px(width), "\" height=\"", Px(y),
      "\" font-family=\"DejaVu Sans, sans-serif\" font-size=\"12\" "
      "role=\"img\">\n<title>",
      pictures.size() == 1 ? EscapeXml(pictures[0].title) : "Topologies",
      "</title>\n<rect class=\"paper\" width=\"", Px(width), "\" height=\"",
      Px(y), "\" fill=\"#FFFFFF\"/>\n", body, "</svg>\n");
}

}  // namespace pipewright
