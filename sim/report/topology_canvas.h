// Boxes and lines of topology_svg.h, with the space that they take, and the
// legend of the links that they stand for. Pixels, y downwards; boxes by their
// centres.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "sim/topology/registry.h"

namespace pipewright {

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
  void Line(CanvasPoint from, CanvasPoint to, int kind);
  // Bends upwards by `rise` in its middle.
  void Arc(CanvasPoint from, CanvasPoint to, double rise, int kind);
  void Dashes(CanvasPoint from, CanvasPoint to, int kind);
  void Note(CanvasPoint start, absl::string_view text);

  bool empty() const { return boxes_.empty(); }
  // All of it with its upper left corner at (left, top), the legend below in
  // the width; sets `right` and `bottom`.
  std::string Place(double left, double top, double least_width, double* right,
                    double* bottom) const;

 private:
  void Cover(double x, double y);
  void Path(const std::string& path, int kind, bool dashed);

  std::string lines_;
  std::string boxes_;
  std::vector<std::string> kinds_;
  bool plain_ = false;  // some line is no link
  double left_ = 1e9, top_ = 1e9, right_ = -1e9, bottom_ = -1e9;
};

// "nvlink: 450 GBps, 300 ns".
std::string LinkLabel(absl::string_view name, double bytes_per_s,
                      double latency_s);

// The inside of node 0.
TopologyCanvas DrawNode(const ShapeParams& params);

}  // namespace pipewright
