#include "sim/topology/mapping.h"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "tests/support/shapes.h"

namespace pipewright::mapping_test {
namespace {

Cluster EightByTwo() { return testing::AnyCluster(2, 8); }

TEST_CASE("mapping: replicas or ranks next to each other", "[topology]") {
  const RankMapping replicas =
      RankMapping::FromOrder("dp-pp", 4, 2, 16).value();
  CHECK(replicas.pp() == 4);
  CHECK(replicas.dp() == 2);
  CHECK(replicas.DeviceOf(0, 0) == 0);
  CHECK(replicas.DeviceOf(1, 0) == 1);
  CHECK(replicas.DeviceOf(0, 1) == 2);
  CHECK(replicas.DeviceOf(1, 3) == 7);
  const RankMapping ranks = RankMapping::FromOrder("pp-dp", 4, 2, 16).value();
  CHECK(ranks.DeviceOf(0, 1) == 1);
  CHECK(ranks.DeviceOf(1, 0) == 4);
  CHECK(ranks.DeviceOf(1, 3) == 7);
}

TEST_CASE("mapping: the ranks of a pair next to each other", "[topology]") {
  const RankMapping pairs = RankMapping::FromOrder("bitpipe", 8, 2, 16).value();
  const int places[] = {0, 7, 2, 5, 4, 3, 6, 1};
  for (int rank = 0; rank < 8; ++rank) {
    CHECK(pairs.DeviceOf(0, rank) == places[rank]);
    CHECK(pairs.DeviceOf(1, rank) == 8 + places[rank]);
    const int partner = pairs.DeviceOf(0, 7 - rank);
    CHECK(std::abs(pairs.DeviceOf(0, rank) - partner) == 1);
    CHECK(pairs.DeviceOf(0, rank) / 2 == partner / 2);
  }
}

TEST_CASE("mapping: a list is [replica * pp + rank]", "[topology]") {
  const RankMapping mapping =
      RankMapping::FromList({5, 4, 1, 0}, 2, 2, 6).value();
  CHECK(mapping.DeviceOf(0, 0) == 5);
  CHECK(mapping.DeviceOf(0, 1) == 4);
  CHECK(mapping.DeviceOf(1, 0) == 1);
}

TEST_CASE("mapping: printed in columns", "[topology]") {
  const Cluster cluster = EightByTwo();
  CHECK(RankMapping::FromOrder("dp-pp", 2, 2, 16).value().ToString(cluster) ==
        "rank 0: node0/gpu0 node0/gpu1\n"
        "rank 1: node0/gpu2 node0/gpu3\n");
  const std::string many =
      RankMapping::FromOrder("pp-dp", 2, 8, 16).value().ToString(cluster);
  CHECK(absl::StrContains(
      many, "rank 0: node0/gpu0 node0/gpu2 node0/gpu4 node0/gpu6 ...\n"));
  CHECK(absl::StrContains(many, "(4 of 8 replicas)"));
}

TEST_CASE("mapping: all devices of a rank", "[topology]") {
  const Cluster cluster = EightByTwo();
  const RankMapping mapping =
      RankMapping::FromOrder("dp-pp", 2, 2, 16, 4).value();
  CHECK(mapping.devices_per_rank() == 4);
  CHECK(mapping.DeviceOf(0, 1) == 8);
  CHECK(mapping.DeviceOf(1, 1, 3) == 15);
  CHECK(mapping.ToString(cluster) ==
        "rank 0: node0/gpu0 to node0/gpu3  node0/gpu4 to node0/gpu7\n"
        "rank 1: node1/gpu0 to node1/gpu3  node1/gpu4 to node1/gpu7\n");
}

TEST_CASE("mapping: any order of the axes", "[topology]") {
  // Tensor parallelism, pipeline, replicas.
  const RankMapping tensor =
      RankMapping::FromOrder("tp-pp-dp", 2, 2, 8, 2).value();
  CHECK(tensor.DeviceOf(0, 0, 1) == 1);
  CHECK(tensor.DeviceOf(0, 1) == 2);
  CHECK(tensor.DeviceOf(1, 0) == 4);
  CHECK(tensor.is_plain());
  // The pipeline inside: devices of a rank stand apart.
  const RankMapping pipeline =
      RankMapping::FromOrder("pp-tp-dp", 2, 2, 16, 4).value();
  CHECK(pipeline.DeviceOf(0, 1) == 1);
  CHECK(pipeline.DeviceOf(0, 0, 1) == 2);
  CHECK(pipeline.DeviceOf(0, 1, 3) == 7);
  CHECK(pipeline.DeviceOf(1, 0, 1) == 10);
  CHECK(!pipeline.is_plain());
  CHECK(pipeline.ToString(EightByTwo()) ==
        "rank 0: node0/gpu0, node0/gpu2 to node0/gpu6  "
        "node1/gpu0, node1/gpu2 to node1/gpu6\n"
        "rank 1: node0/gpu1, node0/gpu3 to node0/gpu7  "
        "node1/gpu1, node1/gpu3 to node1/gpu7\n");
  CHECK(RankMapping::FromOrder("dp-tp-pp", 1, 2, 4, 2)
            .value()
            .ToString(EightByTwo()) ==
        "rank 0: node0/gpu0, node0/gpu2  node0/gpu1, node0/gpu3\n");
  // Parts of a context before tensor parallelism.
  const RankMapping context =
      RankMapping::FromOrder("cp-tp-pp-dp", 1, 1, 6, 6, 3).value();
  CHECK(context.DeviceOf(0, 0, 1) == 3);  // tp 1 of part 0
  CHECK(context.DeviceOf(0, 0, 2) == 1);  // part 1
  CHECK(context.DeviceOf(0, 0, 5) == 5);
  // Megatron's own order is the usual one.
  const RankMapping usual =
      RankMapping::FromOrder("tp-cp-ep-dp-pp", 2, 4, 64, 8, 2).value();
  const RankMapping plain =
      RankMapping::FromOrder("dp-pp", 2, 4, 64, 8).value();
  CHECK(usual.is_plain());
  for (int replica = 0; replica < 4; ++replica) {
    for (int index = 0; index < 8; ++index) {
      CHECK(usual.DeviceOf(replica, 1, index) ==
            plain.DeviceOf(replica, 1, index));
    }
  }
}

TEST_CASE("mapping: groups of experts are next to each other or far apart",
          "[topology]") {
  using Places = std::vector<std::pair<int, int>>;
  const auto with = [](const char* order, int replica, int context,
                       int members) {
    return RankMapping::FromOrder(order, 2, 4, 32, 4, 2)
        .value()
        .ExpertsWith(replica, context, 2, members);
  };
  CHECK(with("dp-pp", 1, 1, 2) == Places{{1, 0}, {1, 1}});
  CHECK(with("tp-cp-ep-dp-pp", 3, 0, 4) ==
        Places{{2, 0}, {2, 1}, {3, 0}, {3, 1}});
  CHECK(with("tp-cp-dp-ep-pp", 3, 0, 4) ==
        Places{{0, 0}, {1, 0}, {2, 0}, {3, 0}});
  CHECK(with("tp-dp-cp-pp", 1, 1, 2) == Places{{0, 1}, {1, 1}});
  // Without replicas there is nothing for them to stand behind.
  CHECK(RankMapping::FromOrder("tp-cp-ep-pp", 2, 1, 32, 16, 8)
            .value()
            .ExpertsWith(0, 1, 8, 4) == Places{{0, 0}, {0, 1}, {0, 2}, {0, 3}});
}

void CheckFails(const absl::StatusOr<RankMapping>& mapping,
                const std::string& part) {
  REQUIRE(mapping.status().code() == absl::StatusCode::kInvalidArgument);
  INFO(mapping.status());
  CHECK(absl::StrContains(mapping.status().message(), part));
}

TEST_CASE("mapping: bad sizes and lists are refused", "[topology]") {
  CheckFails(RankMapping::FromOrder("dppp", 4, 2, 16), "did you mean 'dp-pp'?");
  CheckFails(RankMapping::FromOrder("dp-pp", 0, 2, 16), "pp: 0");
  CheckFails(RankMapping::FromOrder("bitpipe", 3, 2, 16),
             "pp: 3 is not allowed; allowed: 2 or 4, the nearest");
  CheckFails(RankMapping::FromOrder("dp-pp", 4, -1, 16), "dp: -1");
  CheckFails(RankMapping::FromOrder("dp-pp", 4, 5, 16), "at most the 16");
  CheckFails(RankMapping::FromOrder("pp-dp", 1 << 20, 1 << 20, 16),
             "1099511627776");
  CheckFails(RankMapping::FromOrder("dp-pp-dp", 2, 2, 16),
             "each axis once: dp is there 2 times");
  CheckFails(RankMapping::FromOrder("tp-pp-dp", 1, 1, 16, 4, 2),
             "allowed: one with cp, which is 2");
  CheckFails(RankMapping::FromOrder("tp-pp", 1, 3, 16),
             "allowed: one with dp, which is 3");
  CheckFails(RankMapping::FromOrder("tp-xp-dp-pp", 1, 3, 16), "tp-xp-dp-pp");
  CheckFails(RankMapping::FromList({0, 1, 2}, 2, 2, 8), "3 entries");
  CheckFails(RankMapping::FromList({0, 1, 2, 8}, 2, 2, 8), "devices[3]: 8");
  CheckFails(RankMapping::FromList({0, -1, 2, 3}, 2, 2, 8), "devices[1]: -1");
  CheckFails(RankMapping::FromList({0, 1, 2, 0}, 2, 2, 8), "devices[3]: 0");
}

}  // namespace
}  // namespace pipewright::mapping_test
