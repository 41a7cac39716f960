// `list topologies --svg`, and runs on shapes from the command line.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"
#include "tests/support/run_here.h"
#include "tests/support/shapes.h"

namespace pipewright::topology_pictures_test {
namespace {

using testing::BinaryResult;
using testing::RunHere;
using testing::TemporaryFolder;
using Strings = std::vector<std::string>;

BinaryResult Draw(const std::string& path, const Strings& more) {
  Strings arguments = {"list", "topologies", "--svg", path};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunHere(arguments);
}

TEST_CASE("list topologies: a picture of each shape", "[cli]") {
  const TemporaryFolder folder;
  CHECK(Draw(folder.Path("."), {}).exit_code == 0);
  for (const ShapeInfo* shape : AllShapes()) {
    const std::string file = folder.Path(shape->name + ".svg");
    CHECK(absl::StrContains(ReadFile(file).value(), shape->name));
  }
  const std::string all = folder.Path("all.svg");
  CHECK(Draw(all, {}).exit_code == 0);
  const std::string svg = ReadFile(all).value();
  for (const ShapeInfo* shape : AllShapes()) {
    CHECK(absl::StrContains(svg, absl::StrCat(">", shape->name, ": ")));
  }
}

TEST_CASE("list topologies: a picture of one's own system", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("mine.svg");
  for (const std::string& name : SystemNames()) {
    INFO(name);
    const BinaryResult result = Draw(file, {"--system", name});
    INFO(result.err);
    CHECK(result.exit_code == 0);
    CHECK(absl::StrContains(ReadFile(file).value(), absl::StrCat(">", name)));
  }
  CHECK(
      Draw(file, {"--system", "tpu-v5p", "--set", "system.params.sides=4x2x2"})
          .exit_code == 0);
  CHECK(absl::StrContains(ReadFile(file).value(), "16 nodes"));
}

TEST_CASE("list topologies: a picture that cannot be is refused", "[cli]") {
  const TemporaryFolder folder;
  const std::string file = folder.Path("a.svg");
  const auto refused = [&](const Strings& arguments, const std::string& part) {
    const BinaryResult result = RunHere(arguments);
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(absl::StrContains(result.err, part));
  };
  refused({"list", "systems", "--svg", file}, "only with \"list topologies\"");
  refused({"list", "topologies", "--svg", file, "--json"}, "without --json");
  refused({"list", "topologies", "--svg", ""}, "--svg");
  refused({"list", "topologies", "--svg", folder.Path("no/a.svg")}, "--svg");
  refused({"list", "topologies", "--svg", folder.Path("a.html")}, "--svg");
  refused({"list", "topologies", "--svg", file, "--system", "dgx-h10"},
          "did you mean");
  refused({"list", "topologies", "--svg", file, "--system", "dgx-h100", "--set",
           "system.nodes=257"},
          "system.nodes: 257 is not allowed; allowed: 1 to 256");
  refused({"list", "topologies", "--svg", file, "--set", "system.nodes=2"},
          "system");
  refused({"list", "topologies", "--svg", file, "--system", "tpu-v5p", "--set",
           "system.nodes=9", "--set", "system.params.sides=2x2x2"},
          "system.params.sides: 2x2x2 is not allowed");
}

Strings RunOn(const std::string& shape, const Strings& more) {
  Strings arguments = {"simulate",
                       "--schedule",
                       "1f1b",
                       "--pp",
                       "4",
                       "--dp",
                       "2",
                       "--microbatches",
                       "4",
                       "--forward",
                       "1ms",
                       "--backward",
                       "2ms",
                       "--hop-bytes",
                       "16MiB",
                       "--system",
                       "dgx-a100",
                       "--set",
                       "system.shape=" + shape};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

TEST_CASE("simulate: on every shape with simgrid", "[cli]") {
  for (const ShapeInfo* shape : AllShapes()) {
    for (const char* engine : {"fluid", "simgrid"}) {
      INFO(shape->name << " " << engine);
      Strings more = {"--engine", engine};
      if (shape->example_nodes > 1) {
        more.insert(more.end(),
                    {"--set", "system.devices_per_node=1", "--set",
                     "system.nics_per_node=1", "--set",
                     "system.pcie_per_switch=1", "--set", "system.nodes=8"});
      }
      for (const auto& [key, value] : shape->example) {
        const ShapeParam* param = FindShapeParam(*shape, key);
        const bool sizes = param->kind == ShapeParam::Kind::kSizes;
        more.insert(more.end(),
                    {"--set", absl::StrCat("system.params.", key, "=",
                                           sizes ? "2x2x2" : value)});
      }
      const BinaryResult result = RunHere(RunOn(shape->name, more));
      INFO(result.err);
      CHECK(result.exit_code == 0);
      CHECK(absl::StrContains(result.out, "iteration time"));
    }
  }
}

TEST_CASE("simulate: impossible networks exit with 2 and names", "[cli]") {
  const auto refused = [](const std::string& shape, const Strings& more,
                          const std::string& part) {
    const BinaryResult result = RunHere(RunOn(shape, more));
    INFO(result.err);
    CHECK(result.exit_code == 2);
    CHECK(absl::StrContains(result.err, part));
  };
  const std::string params = "system.params.";
  refused("torus", {"--set", params + "sides=3x3x3"},
          "system.params.sides: 3x3x3 is not allowed; allowed: sides that "
          "multiply to the 1 node");
  refused("torus", {"--set", params + "sides=2y2"},
          "system.params.sides: 2y2 is not allowed; allowed: auto, or 1 to 3 "
          "integers");
  refused("multi-site", {"--set", params + "nodes_per_site=1"},
          "system.params.site_bandwidth: missing");
  refused(
      "multi-site",
      {"--set", params + "nodes_per_site=1", "--set",
       params + "site_latency=5ms", "--set", params + "site_bandwidth=0GBps"},
      "system.params.site_bandwidth: 0GBps is not allowed; allowed: a "
      "bandwidth above 0");
  refused("fat-tree",
          {"--set", params + "nodes_per_leaf=1", "--set",
           params + "pod_oversubscription=0.5"},
          "system.params.pod_oversubscription: 0.5");
  refused("dragonfly-plus", {}, "system.params.nodes_per_leaf: missing");
  refused("rail-optimised", {"--set", params + "cross_rail=air"},
          "system.params.cross_rail: air is not allowed; allowed: nvlink, "
          "spine");
  refused("rail-optimised",
          {"--set", "system.devices_per_node=1", "--set",
           "system.nics_per_node=1", "--set", "system.pcie_per_switch=1",
           "--set", "system.nic.bandwidth=0GBps"},
          "system.nic.bandwidth");
  refused("node", {"--set", "system.nodes=2"}, "nodes");
  refused("nic-switch", {"--set", params + "numa_nodes=3"},
          "system.params.numa_nodes: 3 is not allowed; allowed: 1 to 1, a "
          "divisor of params.pcie_roots (1)");
  refused("nic-switch", {"--set", params + "numa_node=3"},
          "did you mean 'numa_nodes'?");
}

TEST_CASE("simulate: what-if scales the link between sites too", "[cli]") {
  const Strings sites = {"--set", "system.devices_per_node=4",
                         "--set", "system.nics_per_node=4",
                         "--set", "system.params.nodes_per_site=1"};
  const auto step = [&](const std::string& bandwidth,
                        const std::string& latency, bool halved,
                        const Strings& links) {
    Strings arguments = RunOn("multi-site", sites);
    arguments[0] = halved ? "explain" : "simulate";
    arguments.insert(
        arguments.end(),
        {"--set", "system.params.site_bandwidth=" + bandwidth, "--set",
         "system.params.site_latency=" + latency, "--json"});
    arguments.insert(arguments.end(), links.begin(), links.end());
    if (halved) arguments.insert(arguments.end(), {"--what-if", "network*2"});
    const BinaryResult result = RunHere(arguments);
    INFO(result.err);
    REQUIRE(result.exit_code == 0);
    return result.out;
  };
  const std::string slow = step(
      "5Gbps", "2ms", false,
      {"--set", "system.nic.bandwidth=100Gbps", "--set",
       "system.nic.latency=2.7us", "--set", "system.nvlink.bandwidth=150GBps",
       "--set", "system.nvlink.latency=0.6us"});
  const std::string key = "\"iteration_s\":";
  const size_t at = slow.find(key);
  REQUIRE(at != std::string::npos);
  const double expected = std::strtod(slow.c_str() + at + key.size(), nullptr);
  const std::string explained = step("10Gbps", "1ms", true, {});
  INFO(explained.substr(0, 3000));
  bool found = false;
  for (size_t place = explained.find("iteration_s\":");
       place != std::string::npos;
       place = explained.find("iteration_s\":", place + 1)) {
    const double seconds = std::strtod(explained.c_str() + place + 13, nullptr);
    found |= seconds == Approx(expected).epsilon(1e-9);
  }
  CHECK(found);
}

double StepOn(const Strings& more) {
  Strings arguments = {"simulate",
                       "--schedule",
                       "1f1b",
                       "--pp",
                       "8",
                       "--microbatches",
                       "8",
                       "--model",
                       "llama3-8b",
                       "--analytic",
                       "--system",
                       "a100-roce",
                       "--engine",
                       "simgrid",
                       "--optimizer-placement",
                       "deep-optimizer-states",
                       "--set",
                       "system.host.memory_bandwidth=36GBps",
                       "--set",
                       "system.host.cast_rate=2.1e9",
                       "--json"};
  for (const std::string& param : more) {
    arguments.insert(arguments.end(), {"--set", "system.params." + param});
  }
  const BinaryResult result = RunHere(arguments);
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const std::string key = "\"iteration_s\":";
  const size_t at = result.out.find(key);
  REQUIRE(at != std::string::npos);
  return std::strtod(result.out.c_str() + at + key.size(), nullptr);
}

// Four devices of the second socket copy at once, two over each PCIe switch of
// 31.5 GB/s: the link between the sockets slows them below 63 GB/s.
TEST_CASE("simulate: copies across sockets wait for a narrow link", "[cli]") {
  const double local = StepOn({});
  // On the first socket all have half of the host's memory. The shipped link is
  // as good as one without end.
  const double first = StepOn({"host_numa=first"});
  CHECK(first > local * 1.05);
  CHECK(StepOn({"host_numa=first", "numa_bandwidth=10TBps"}) ==
        Approx(first).epsilon(1e-4));
  CHECK(StepOn({"host_numa=first", "numa_bandwidth=20GBps"}) > first * 1.005);
  // A root that two devices share by themselves is as wide as their switch.
  CHECK(StepOn({"root_bandwidth=31.5GBps"}) == Approx(local).epsilon(1e-9));
  CHECK(StepOn({"root_bandwidth=10GBps"}) > local * 1.005);
}

}  // namespace
}  // namespace pipewright::topology_pictures_test
