// Pictures of clusters: every node, switch and part of a node has its box, no
// box lies on another, and every link has its line.
#include "sim/report/topology_svg.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/topology/link_graph.h"
#include "sim/topology/system.h"
#include "tests/support/shapes.h"
#include "tests/support/toy_ops.h"
#include "tests/support/xml_check.h"

namespace pipewright::topology_svg_test {
namespace {

using testing::Count;
using testing::XmlProblem;

struct Rect {
  double left, top, right, bottom;
};

double Number(const std::string& tag, const std::string& name) {
  const std::string key = absl::StrCat(" ", name, "=\"");
  const size_t at = tag.find(key);
  REQUIRE(at != std::string::npos);
  return std::strtod(tag.c_str() + at + key.size(), nullptr);
}

// The boxes of each group, which has coordinates of its own.
std::vector<std::vector<Rect>> Boxes(const std::string& svg) {
  std::vector<std::vector<Rect>> groups;
  for (size_t at = svg.find("<g transform"); at != std::string::npos;
       at = svg.find("<g transform", at + 1)) {
    const std::string group = svg.substr(at, svg.find("</g>", at) - at);
    std::vector<Rect> boxes;
    for (size_t box = group.find("<rect"); box != std::string::npos;
         box = group.find("<rect", box + 1)) {
      const std::string tag = group.substr(box, group.find("/>", box) - box);
      const double x = Number(tag, "x"), y = Number(tag, "y");
      boxes.push_back(
          {x, y, x + Number(tag, "width"), y + Number(tag, "height")});
    }
    if (!boxes.empty()) groups.push_back(boxes);
  }
  return groups;
}

int Overlaps(const std::vector<Rect>& boxes) {
  int overlaps = 0;
  for (size_t one = 0; one < boxes.size(); ++one) {
    for (size_t other = 0; other < one; ++other) {
      const Rect &a = boxes[one], &b = boxes[other];
      overlaps += a.left < b.right && b.left < a.right && a.top < b.bottom &&
                  b.top < a.bottom;
    }
  }
  return overlaps;
}

TEST_CASE("topology svg: every shape has its nodes, switches and lines",
          "[svg]") {
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    for (const int devices : {1, 4, 12}) {
      INFO(devices);
      ShapeParams params =
          testing::SampleParams(shape->name, shape->example_nodes, devices);
      params.own = shape->example;
      const ShapeParams complete = CompleteParams(params).value();
      const Cluster cluster = BuildCluster(params).value();
      const std::string svg = TopologySvg({{"A & B", complete, &cluster}});
      CHECK(XmlProblem(svg) == "");
      CHECK(absl::StrContains(svg, "A &amp; B"));
      const std::vector<std::vector<Rect>> groups = Boxes(svg);
      REQUIRE(groups.size() == (params.nodes > 1 ? 2u : 1u));
      for (const std::vector<Rect>& boxes : groups) CHECK(Overlaps(boxes) == 0);
      if (params.nodes == 1) continue;
      const LinkGraph graph = GraphOf(cluster);
      CHECK(static_cast<int>(groups[0].size()) == graph.vertices);
      // A line for every pair of places that links join; where it goes round
      // to the other end, two stubs.
      std::set<std::pair<int, int>> pairs;
      for (const LinkGraph::Edge& edge : graph.edges) {
        pairs.insert(std::minmax(edge.from, edge.to));
      }
      const size_t first = svg.find("<g transform");
      const std::string network =
          svg.substr(first, svg.find("</g>", first) - first);
      CHECK(Count(network, "<path") - Count(network, "dasharray") / 2 ==
            static_cast<int>(pairs.size()));
    }
  }
}

TEST_CASE("topology svg: the inside of a node", "[svg]") {
  ShapeParams params = FindSystem("a100-roce").value();
  params.nodes = 2;
  params.own["host_numa"] = std::string("first");
  const ShapeParams complete = CompleteParams(params).value();
  const Cluster cluster = BuildCluster(params).value();
  const std::string svg = TopologySvg({{"roce", complete, &cluster}});
  for (const char* label :
       {">NVSwitch<", ">gpu7<", ">nic7<", ">pcie3<", ">root3<",
        ">mem1 144 GBps<", ">NVLink: 300 GBps, 300 ns<",
        ">PCIe to the host: 31.5 GBps, 1 us<",
        ">NUMA node to the first: 96 GBps, 100 ns<", ">switch<"}) {
    INFO(label);
    CHECK(Count(svg, label) == 1);
  }
  CHECK_FALSE(absl::StrContains(svg, ">pcie4<"));
  CHECK_FALSE(absl::StrContains(svg, "root to memory"));
}

TEST_CASE("topology svg: the first devices of a wide node", "[svg]") {
  ShapeParams params = FindSystem("gb200-nvl72").value();
  params.nodes = 2;
  const ShapeParams complete = CompleteParams(params).value();
  const Cluster cluster = BuildCluster(params).value();
  const std::string svg = TopologySvg({{"nvl72", complete, &cluster}});
  CHECK(absl::StrContains(svg, "the first 8 of 72 devices of a node"));
  CHECK(absl::StrContains(svg, "nic: 50 GBps, 1.35 us, 72 side by side"));
}

}  // namespace
}  // namespace pipewright::topology_svg_test
