// A torus of one to three dimensions: a node has a cable to each of its two
// neighbours in every dimension, of each of its NICs: with one NIC a device the
// n-th devices of all nodes have a torus of their own.
//
// A cable is two links of the nic class. A dimension of two nodes has one
// cable, one of one node has none. A message goes through the dimensions in
// turn, x first, the shorter way round each (dimension order, W. J. Dally and
// B. Towles, "Principles and Practices of Interconnection Networks", chapter
// 8); where both ways are equally long, half of the pairs go each. It uses the
// torus of the sender's NIC and takes the latency of every link on its way;
// what a node forwards costs its devices nothing. Chips with links of their
// own, as TPUs have, are nodes of one device.
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"
#include "sim/topology/layout.h"
#include "sim/topology/registry.h"

namespace pipewright::torus {
namespace {

constexpr char kSides[] = "sides";
constexpr int kDimensions = 3;
using Sides = std::array<int, kDimensions>;

// The three sides with the smallest sum, the longest first.
Sides MostCubic(int nodes) {
  Sides best = {nodes, 1, 1};
  for (int z = 1; static_cast<int64_t>(z) * z * z <= nodes; ++z) {
    if (nodes % z != 0) continue;
    const int rest = nodes / z;
    for (int y = z; static_cast<int64_t>(y) * y <= rest; ++y) {
      if (rest % y != 0) continue;
      const int x = rest / y;
      if (x + y + z < best[0] + best[1] + best[2]) best = {x, y, z};
    }
  }
  return best;
}

absl::StatusOr<Sides> SidesOf(const ShapeParams& params) {
  const std::vector<int> given = params.OwnSizes(kSides);
  if (given.empty()) return MostCubic(params.nodes);
  Sides sides = {1, 1, 1};
  int64_t product = 1;
  for (size_t index = 0; index < given.size(); ++index) {
    sides[index] = given[index];
    product *= given[index];
  }
  if (product == params.nodes) return sides;
  return BadValue(
      absl::StrCat("params.", kSides), absl::StrJoin(given, "x"),
      absl::StrCat("sides that multiply to the ", params.nodes,
                   params.nodes == 1 ? " node" : " nodes", ", such as ",
                   absl::StrJoin(MostCubic(params.nodes), "x"),
                   ", or auto (these have ", product, ")"));
}

Sides PlaceOf(int node, const Sides& sides) {
  return {node % sides[0], node / sides[0] % sides[1],
          node / sides[0] / sides[1]};
}

// Links of a NIC in one dimension: up and down, or one where up and down lead
// to the same node.
int LinksOf(int side) { return side > 2 ? 2 : side - 1; }

absl::StatusOr<Cluster> Build(const ShapeParams& params) {
  const NodeLayout layout(params, NodeLayout::Nics::kNone);
  PW_ASSIGN_OR_RETURN(const Sides sides, SidesOf(params));
  std::array<int, kDimensions + 1> offset = {};
  for (int each = 0; each < kDimensions; ++each) {
    offset[each + 1] = offset[each] + LinksOf(sides[each]);
  }
  std::vector<Link> fabric;
  for (int node = 0; node < params.nodes; ++node) {
    for (int nic = 0; nic < layout.nics(); ++nic) {
      for (int each = 0; each < kDimensions; ++each) {
        for (int way = 0; way < LinksOf(sides[each]); ++way) {
          fabric.push_back(
              {absl::StrCat("node", node, "/nic", nic, "/torus-",
                            std::string(1, static_cast<char>('x' + each)),
                            way == 0 ? "-up" : "-down"),
               params.nic.bytes_per_s, params.nic.latency_s});
        }
      }
    }
  }
  const LinkId first = layout.num_links();
  return layout.Build(
      params, std::move(fabric),
      [layout, sides, offset, first](int from, int to,
                                     std::vector<LinkId>* links) {
        Sides at = PlaceOf(layout.NodeOf(from), sides);
        const Sides target = PlaceOf(layout.NodeOf(to), sides);
        for (int each = 0; each < kDimensions; ++each) {
          const int side = sides[each];
          const int ahead = (target[each] - at[each] + side) % side;
          // As many pairs go up as down where the ways are equal.
          const int odd = (at[0] + at[1] + at[2]) % 2;
          const bool up =
              side == 2 || ahead * 2 < side || (ahead * 2 == side && odd == 0);
          for (int hop = up ? ahead : side - ahead; hop > 0 && ahead > 0;
               --hop) {
            const int node = (at[2] * sides[1] + at[1]) * sides[0] + at[0];
            links->push_back(first +
                             (node * layout.nics() + layout.NicOf(from)) *
                                 offset.back() +
                             offset[each] + (up ? 0 : 1));
            at[each] = (at[each] + (up ? 1 : side - 1)) % side;
          }
        }
      });
}

// x to the right, y down, z behind: aslant, with a gap between the layers.
std::pair<double, double> Place(const ShapeParams& params, int node) {
  const absl::StatusOr<Sides> sides = SidesOf(params);
  const Sides at = PlaceOf(node, sides.ok() ? *sides : MostCubic(params.nodes));
  return {at[0] + 0.37 * at[2], at[1] + 0.29 * at[2]};
}

const RegisterShape kRegistered({
    .name = "torus",
    .summary =
        "nodes with cables to their neighbours in up to three dimensions",
    .params = {{.key = kSides,
                .kind = ShapeParam::Kind::kSizes,
                .most = kDimensions,
                .fallback = "auto",
                .help = "nodes along x, y and z, which multiply to all nodes",
                .links = "torus"}},
    .example_nodes = 36,
    .example = {{kSides, "4x3x3"}},
    .place = Place,
    .build = Build,
});

}  // namespace
}  // namespace pipewright::torus
