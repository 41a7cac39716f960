// SimGrid by itself (simgrid_yardstick.cc) against engine simgrid: the same
// pipeline takes the same, and a platform file has the routes of its cluster.
#include "sim/engine/simgrid_platform.h"

#include <catch2/catch.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::simgrid_platform_test {
namespace {

using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;

using Strings = std::vector<std::string>;

// The numbers that the yardstick prints.
std::vector<double> Yardstick(Strings words) {
  const std::string binary = testing::BinaryPath();
  words.insert(words.begin(), absl::StrCat(binary.substr(0, binary.rfind('/')),
                                           "/tests/simgrid_yardstick"));
  const BinaryResult result = testing::RunProgram(words);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  std::istringstream text(result.out);
  std::vector<double> numbers;
  for (double number = 0; text >> number;) numbers.push_back(number);
  return numbers;
}

// As the yardstick has it: nodes of one device and one card each.
Json Pipeline(const std::string& engine, int ranks, int replicas,
              int microbatches) {
  const BinaryResult run =
      RunBinary({"simulate",
                 "--schedule",
                 "1f1b",
                 "--pp",
                 absl::StrCat(ranks),
                 "--dp",
                 absl::StrCat(replicas),
                 "--data-parallel",
                 "none",
                 "--microbatches",
                 absl::StrCat(microbatches),
                 "--forward",
                 "5ms",
                 "--backward",
                 "10ms",
                 "--hop-bytes",
                 "16MiB",
                 "--set",
                 "system.shape=nic-switch",
                 "--set",
                 "system.devices_per_node=1",
                 "--set",
                 "system.nic.bandwidth=25GBps",
                 "--set",
                 "system.nic.latency=1us",
                 "--set",
                 absl::StrCat("system.nodes=", ranks * replicas),
                 "--iterations",
                 "1",
                 "--engine",
                 engine,
                 "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return Json::parse(run.out);
}

TEST_CASE("simgrid: a pipeline takes what it takes in a bare S4U program",
          "[engine][cli]") {
  struct Sizes {
    int ranks;
    int replicas;
    int microbatches;
  };
  for (const auto& [ranks, replicas, microbatches] :
       {Sizes{4, 1, 4}, Sizes{4, 3, 9}, Sizes{8, 2, 16}}) {
    INFO(ranks << " ranks, " << replicas << " replicas");
    const std::vector<double> bare =
        Yardstick({"pipeline", absl::StrCat(ranks), absl::StrCat(replicas),
                   absl::StrCat(microbatches)});
    REQUIRE(bare.size() == 3);
    const Json report = Pipeline("simgrid", ranks, replicas, microbatches);
    const Json& activities = report.at("activities");
    // 2 passes of each microbatch on every rank, a hop each between ranks.
    CHECK(activities.at("exec") == 2 * ranks * replicas * microbatches);
    CHECK(activities.at("comm") == 2 * (ranks - 1) * replicas * microbatches);
    CHECK(bare[0] == activities.at("exec").get<double>() +
                         activities.at("comm").get<double>());
    for (const char* engine : {"simgrid", "fluid", "fast"}) {
      CHECK(Pipeline(engine, ranks, replicas, microbatches)
                .at("iteration_s")
                .get<double>() == Approx(bare[1]).epsilon(1e-12).margin(0));
    }
  }
}

TEST_CASE("simgrid: flows over a platform file take what the cluster says",
          "[engine][cli][topology]") {
  constexpr double kBytes = 1e9;
  const testing::TemporaryFolder folder;
  for (const std::string name : {"dgx-h100", "dgx-a100", "a100-roce"}) {
    INFO(name);
    const std::string path = folder.Path(name + ".xml");
    const BinaryResult written =
        RunBinary({"list", "topologies", "--system", name, "--set",
                   "system.nodes=2", "--simgrid-platform", path});
    INFO(written.err);
    REQUIRE(written.exit_code == 0);
    ShapeParams params = FindSystem(name).value();
    params.nodes = 2;
    const Cluster cluster = BuildCluster(params).value();
    const Strings hosts = SimgridHostNames(cluster);
    const int memory = cluster.num_devices();
    const int far = params.devices_per_node;
    const auto expected_s = [&](const std::vector<LinkId>& route) {
      return cluster.LatencyOf(route) + kBytes / cluster.BandwidthOf(route);
    };
    const std::vector<std::pair<int, std::vector<LinkId>>> routes = {
        {1, cluster.Route(0, 1)},
        {far + 1, cluster.Route(0, far + 1)},
        {memory, cluster.DeviceToHost(0)}};
    for (const auto& [to, route] : routes) {
      INFO(hosts[0] << " to " << hosts[to]);
      const std::vector<double> end =
          Yardstick({"flows", path, "1000000000", hosts[0], hosts[to]});
      REQUIRE(end.size() == 1);
      CHECK(end[0] == Approx(expected_s(route)).epsilon(1e-9).margin(0));
    }
    // Two that leave the same device for another node have half of its card.
    const std::vector<double> ends =
        Yardstick({"flows", path, "1000000000", hosts[0], hosts[far], hosts[0],
                   hosts[far]});
    const std::vector<LinkId> route = cluster.Route(0, far);
    REQUIRE(ends.size() == 2);
    CHECK(ends[1] == Approx(cluster.LatencyOf(route) +
                            2 * kBytes / cluster.BandwidthOf(route))
                         .epsilon(1e-9)
                         .margin(0));
  }
}

TEST_CASE("simgrid: what cannot be written as a platform is refused",
          "[engine][cli]") {
  const testing::TemporaryFolder folder;
  const auto refused = [&](Strings words, const std::string& part) {
    words.insert(words.end(), {"--simgrid-platform", folder.Path("a.xml")});
    words.insert(words.begin(), "list");
    const BinaryResult result = RunBinary(words);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(absl::StrContains(result.err, part));
    CHECK(folder.Files().empty());
  };
  refused({"topologies"}, "--system");
  refused({"systems", "--system", "dgx-h100"}, "only with \"list topologies\"");
  refused({"topologies", "--system", "dgx-h100", "--set", "system.nodes=65"},
          "520 is not allowed; allowed: 1 to 512 devices");
}

}  // namespace
}  // namespace pipewright::simgrid_platform_test
