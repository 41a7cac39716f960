#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/base/error_parts.h"
#include "sim/topology/registry.h"
#include "tests/support/shapes.h"

namespace pipewright::fat_tree_test {
namespace {

using testing::LinkNames;
using testing::SampleParams;
using Strings = std::vector<std::string>;

ShapeParams FatTree(int nodes, int devices, const char* nodes_per_leaf) {
  ShapeParams params = SampleParams("fat-tree", nodes, devices);
  params.own["nodes_per_leaf"] = nodes_per_leaf;
  return params;
}

TEST_CASE("fat-tree: a route goes up as far as it must", "[topology]") {
  ShapeParams params = FatTree(5, 2, "2");
  params.own["oversubscription"] = std::string("4");
  const Cluster cluster = BuildCluster(params).value();
  CHECK(LinkNames(cluster, cluster.Route(0, 3)) ==
        Strings{"node0/nic0/up", "node1/nic1/down"});
  const std::vector<LinkId> across = cluster.Route(0, 9);
  CHECK(LinkNames(cluster, across) ==
        Strings{"node0/nic0/up", "leaf0/up", "leaf2/down", "node4/nic1/down"});
  // 2 nodes x 2 NICs x 25 GB/s / 4.
  CHECK(cluster.links()[across[1]].bytes_per_s == Approx(25e9));
  CHECK(cluster.LatencyOf(across) == Approx(8e-6));
  params.own["oversubscription"] = std::string("8");
  const Cluster slower = BuildCluster(params).value();
  CHECK(slower.BandwidthOf(slower.Route(0, 9)) == Approx(12.5e9));
  CHECK(slower.BandwidthOf(slower.Route(0, 3)) == Approx(25e9));
}

TEST_CASE("fat-tree: leaves are not oversubscribed by default", "[topology]") {
  const Cluster cluster = BuildCluster(FatTree(5, 2, "2")).value();
  const std::vector<LinkId> across = cluster.Route(0, 9);
  CHECK(cluster.links()[across[1]].bytes_per_s == 2 * 2 * 25e9);
}

TEST_CASE("fat-tree: one leaf is a nic-switch", "[topology]") {
  const Cluster tree = BuildCluster(FatTree(2, 4, "2")).value();
  const Cluster flat = BuildCluster(SampleParams("nic-switch", 2, 4)).value();
  CHECK(tree.links().size() == flat.links().size());
  for (int from = 0; from < 8; ++from) {
    for (int to = 0; to < 8; ++to) {
      CHECK(LinkNames(tree, tree.Route(from, to)) ==
            LinkNames(flat, flat.Route(from, to)));
    }
  }
}

TEST_CASE("fat-tree: a large cluster", "[topology]") {
  const Cluster tree = BuildCluster(FatTree(8192, 8, "32")).value();
  CHECK(tree.num_devices() == 65536);
  CHECK(LinkNames(tree, tree.Route(0, 65535)) ==
        Strings{"node0/nic0/up", "leaf0/up", "leaf255/down",
                "node8191/nic7/down"});
}

TEST_CASE("fat-tree: nodes_per_leaf has no default", "[topology]") {
  ShapeParams params = FatTree(4, 2, "2");
  params.own.clear();
  const absl::Status status = BuildCluster(params).status();
  CHECK(status.message() ==
        "params.nodes_per_leaf: missing; allowed: an integer from 1 to 1048576 "
        "(shape fat-tree)");
  CHECK(PartsOf(status).field == "params.nodes_per_leaf");
}

}  // namespace
}  // namespace pipewright::fat_tree_test
