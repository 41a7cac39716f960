// Shapes with links between every two of something: dragonfly-plus, multi-site.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "sim/base/error_parts.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"
#include "tests/support/shapes.h"

namespace pipewright::sites_and_groups_test {
namespace {

using testing::LinkNames;
using testing::SampleParams;
using Strings = std::vector<std::string>;

TEST_CASE("dragonfly-plus: leaf, spine, spine, leaf", "[topology]") {
  ShapeParams params = SampleParams("dragonfly-plus", 12, 2);
  params.own = {{"nodes_per_leaf", "2"},
                {"leaves_per_group", "2"},
                {"oversubscription", "2"},
                {"global_oversubscription", "4"}};
  const Cluster cluster = BuildCluster(params).value();
  CHECK(LinkNames(cluster, cluster.Route(0, 2)) ==
        Strings{"node0/nic0/up", "node1/nic0/down"});
  CHECK(LinkNames(cluster, cluster.Route(0, 5)) ==
        Strings{"node0/nic0/up", "leaf0/up", "leaf1/down", "node2/nic1/down"});
  const std::vector<LinkId> far = cluster.Route(0, 23);
  CHECK(LinkNames(cluster, far) == Strings{"node0/nic0/up", "leaf0/up",
                                           "group0/to-group2", "leaf5/down",
                                           "node11/nic1/down"});
  CHECK(LinkNames(cluster, cluster.Route(23, 0))[2] == "group2/to-group0");
  CHECK(LinkNames(cluster, cluster.Route(8, 16))[2] == "group1/to-group2");
  // 2 nodes x 2 NICs x 25 GB/s / 2; two leaves of it / 4 over two groups.
  CHECK(cluster.links()[far[1]].bytes_per_s == Approx(50e9));
  CHECK(cluster.links()[far[2]].bytes_per_s == Approx(12.5e9));
  CHECK(cluster.LatencyOf(far) == Approx(5 * 2e-6));
}

TEST_CASE("dragonfly-plus: too many groups are refused", "[topology]") {
  ShapeParams params = SampleParams("dragonfly-plus", 4096, 1);
  params.own = {{"nodes_per_leaf", "1"}, {"leaves_per_group", "2"}};
  const absl::Status status = BuildCluster(params).status();
  CHECK(status.message() ==
        "params.leaves_per_group: 2 is not allowed; allowed: 4 or more: 4096 "
        "leaves make at most 1024 groups");
}

TEST_CASE("multi-site: between sites over their link", "[topology]") {
  ShapeParams params = SampleParams("multi-site", 6, 2);
  params.own = {{"nodes_per_site", "2"},
                {"site_bandwidth", "100Gbps"},
                {"site_latency", "5ms"}};
  const Cluster cluster = BuildCluster(params).value();
  CHECK(LinkNames(cluster, cluster.Route(0, 3)) ==
        Strings{"node0/nic0/up", "node1/nic1/down"});
  const std::vector<LinkId> far = cluster.Route(0, 11);
  CHECK(LinkNames(cluster, far) ==
        Strings{"node0/nic0/up", "site0/to-site2", "node5/nic1/down"});
  CHECK(LinkNames(cluster, cluster.Route(11, 0)) ==
        Strings{"node5/nic1/up", "site2/to-site0", "node0/nic0/down"});
  CHECK(cluster.BandwidthOf(far) == Approx(12.5e9));
  CHECK(cluster.LatencyOf(far) == Approx(5e-3 + 2 * 2e-6));
}

TEST_CASE("multi-site: its link needs a bandwidth", "[topology]") {
  ShapeParams params = SampleParams("multi-site", 4, 1);
  params.own = {{"nodes_per_site", "2"}, {"site_latency", "5ms"}};
  absl::Status status = BuildCluster(params).status();
  CHECK(status.message() ==
        "params.site_bandwidth: missing; allowed: a bandwidth above 0 with its "
        "unit, such as 400Gbps (shape multi-site)");
  params.own["site_bandwidth"] = "0GBps";
  status = BuildCluster(params).status();
  CHECK(PartsOf(status).field == "params.site_bandwidth");
  CHECK(PartsOf(status).value == "0GBps");
}

TEST_CASE("multi-site: the shipped one has two sites", "[topology]") {
  ShapeParams params = FindSystem("two-site-h100").value();
  params.nodes = 32;
  const Cluster cluster = BuildCluster(params).value();
  const std::vector<LinkId> far = cluster.Route(0, 255);
  CHECK(LinkNames(cluster, far)[1] == "site0/to-site1");
  // 1000 km of fibre, group index 1.468.
  CHECK(cluster.LatencyOf(far) ==
        Approx(1e6 * 1.468 / 299792458 + 2 * 1.35e-6).epsilon(0.002));
  CHECK(cluster.links()[far[1]].bytes_per_s == Approx(400e9));
}

}  // namespace
}  // namespace pipewright::sites_and_groups_test
