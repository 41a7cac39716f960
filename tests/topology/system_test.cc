#include "sim/topology/system.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "sim/base/error_parts.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"
#include "tests/support/shapes.h"

namespace pipewright::system_test {
namespace {

constexpr char kSystem[] = R"(name: "box"
shape: "node"
device_name: "X1"
memory { value: "16GiB" source: "sheet" }
devices_per_node { value: 4 source: "sheet" }
nics_per_node { value: 2 source: "sheet" }
pcie_per_switch { value: 2 source: "guide" }
nvlink {
  bandwidth { value: "100GBps" source: "sheet" }
  latency { value: "500ns" source: "paper" }
}
nic {
  bandwidth { value: "100Gbps" source: "sheet" }
  latency { value: "2us" source: "paper" }
}
pcie {
  bandwidth { value: "16GBps" source: "sheet" }
  latency { value: "1us" source: "paper" }
}
)";

TEST_CASE("system: a file becomes parameters", "[topology]") {
  const ShapeParams params = ParseSystem(kSystem, "box.textproto").value();
  CHECK(params.name == "box");
  CHECK(params.shape == "node");
  CHECK(params.nodes == 1);
  CHECK(params.devices_per_node == 4);
  CHECK(params.nics_per_node == 2);
  CHECK(params.pcie_per_switch == 2);
  CHECK(params.device_name == "X1");
  CHECK(params.memory_bytes == 16.0 * (1 << 30));
  CHECK(params.nvlink.bytes_per_s == 100e9);
  CHECK(params.nvlink.latency_s == Approx(5e-7));
  CHECK(params.nvlink.source == "bandwidth: sheet; latency: paper");
  CHECK(params.nic.bytes_per_s == 12.5e9);
  CHECK(params.pcie.latency_s == Approx(1e-6));
  CHECK(params.sources.at("memory") == "sheet");
  CHECK(params.sources.at("pcie_per_switch") == "guide");
}

TEST_CASE("system: the shipped ones have the published numbers", "[topology]") {
  CHECK(SystemNames() ==
        std::vector<std::string>{"a100-roce", "dgx-a100", "dgx-b200",
                                 "dgx-b300", "dgx-h100", "dgx-h200",
                                 "gb200-nvl72", "gb300-nvl72", "gh200",
                                 "mi300x-node", "rtx4090-pcie", "tpu-v5p",
                                 "two-site-h100"});
  const ShapeParams a100 = FindSystem("dgx-a100").value();
  CHECK(a100.nvlink.bytes_per_s == 300e9);
  CHECK(a100.nic.bytes_per_s == 25e9);
  CHECK(a100.pcie_per_switch == 2);
  const ShapeParams h100 = FindSystem("dgx-h100").value();
  CHECK(h100.nvlink.bytes_per_s == 450e9);
  CHECK(h100.nic.bytes_per_s == 50e9);
  for (const std::string& name : SystemNames()) {
    INFO(name);
    ShapeParams params = FindSystem(name).value();
    CHECK(params.name == name);
    // A rack whose GPUs have one NVLink domain is one node.
    const bool alone = name == "tpu-v5p" || name == "gh200";
    const int devices = absl::EndsWith(name, "nvl72") ? 72 : alone ? 1 : 8;
    CHECK(params.devices_per_node == devices);
    const double least_GiB = name == "rtx4090-pcie" ? 23 : 79;
    CHECK(params.memory_bytes > least_GiB * 1073741824.0);
    CHECK(params.memory_bytes <= 288e9);
    REQUIRE(BuildCluster(params).ok());
    params.nodes = 16;
    const Cluster cluster = BuildCluster(params).value();
    CHECK(cluster.num_devices() == 16 * devices);
    CHECK(cluster.BandwidthOf(cluster.Route(0, 16 * devices - 1)) ==
          params.nic.bytes_per_s);
  }
}

TEST_CASE("system: a superchip's host has a memory of known speed",
          "[topology]") {
  ShapeParams gh200 = FindSystem("gh200").value();
  CHECK(gh200.host.bytes_per_s == 448e9);
  CHECK(absl::StrContains(ToString(gh200), "host_memory_bandwidth"));
  gh200.nodes = 2;
  const Cluster cluster = BuildCluster(gh200).value();
  // Chip to chip, then the host's memory, which is the narrower of the two.
  CHECK(cluster.BandwidthOf(cluster.DeviceToHost(0)) == 448e9);
  // A device of a DGX may take its neighbours' part.
  CHECK(FindSystem("dgx-h100")->host.bytes_per_s == 49e9);
  CHECK(FindSystem("gb200-nvl72")->host.bytes_per_s == 0);
  std::string bad(kSystem);
  bad += "host_memory_bandwidth { value: \"9 apples\" source: \"sheet\" }\n";
  const auto refused = ParseSystem(bad, "box.textproto");
  CHECK(absl::StrContains(refused.status().message(), "host_memory_bandwidth"));
}

TEST_CASE("system: hosts of DGX systems have a flush", "[topology]") {
  for (const char* name : {"dgx-h100", "dgx-h200", "dgx-b200"}) {
    CAPTURE(name);
    const ShapeParams system = FindSystem(name).value();
    CHECK(system.host.flush_rate == 1.14e9);
    CHECK(absl::StrContains(ToString(system), "1.14e+09 parameters/s"));
  }
  CHECK(FindSystem("dgx-a100")->host.flush_rate == 1.6e9);
  const std::string file(kSystem);
  const auto with = [&](const std::string& rate) {
    return ParseSystem(absl::StrCat(file, "host_flush_rate { ", rate, " }\n"),
                       "box.textproto");
  };
  CHECK(with("value: 2e9 source: \"log\"")->host.flush_rate == 2e9);
  for (const char* rate :
       {"value: 0 source: \"log\"", "value: -1 source: \"log\"",
        "value: nan source: \"log\"", "value: 1e16 source: \"log\"",
        "value: 2e9"}) {
    CAPTURE(rate);
    const auto refused = with(rate);
    REQUIRE(!refused.ok());
    CHECK(absl::StrContains(refused.status().message(), "host_flush_rate"));
  }
}

TEST_CASE("system: every number prints with its source", "[topology]") {
  const std::string text =
      ToString(ParseSystem(kSystem, "box.textproto").value());
  CHECK(absl::StrContains(text, "devices_per_node  4"));
  for (const char* line :
       {"devices_per_node ", "nics_per_node ", "pcie_per_switch ", "memory ",
        "nvlink ", "nic ", "pcie "}) {
    INFO(line);
    const size_t begin = text.find(absl::StrCat("\n  ", line));
    REQUIRE(begin != std::string::npos);
    const std::string rest =
        text.substr(begin + 1, text.find('\n', begin + 1) - begin - 1);
    CHECK(absl::StrContains(rest, "("));
    CHECK(absl::EndsWith(rest, ")"));
  }
  CHECK(absl::StrContains(text, "12.5 GBps, 2 us"));
}

TEST_CASE("system: a file gives a shape's own parameters", "[topology]") {
  for (const ShapeInfo* shape : AllShapes()) {
    std::string file = absl::StrReplaceAll(
        kSystem,
        {{"shape: \"node\"", absl::StrCat("shape: \"", shape->name, "\"")}});
    const auto with = [&](const std::string& key, const std::string& value,
                          const std::string& source) {
      return ParseSystem(
          absl::StrCat(file, "params { key: \"", key, "\" value: \"", value,
                       "\"", source, " }\n"),
          "box.textproto");
    };
    for (const ShapeParam& param : shape->params) {
      INFO(shape->name << " " << param.key);
      for (const std::string& value : testing::LegalValuesOf(param)) {
        const ShapeParams params =
            with(param.key, value, " source: \"guide\"").value();
        CHECK(params.own == ShapeParamValues{{param.key, value}});
        CHECK(params.sources.at(absl::StrCat("params.", param.key)) == "guide");
        CHECK(absl::StrContains(ToString(params), param.key));
      }
      for (const std::string& value : testing::IllegalValuesOf(param)) {
        const absl::Status status =
            with(param.key, value, " source: \"guide\"").status();
        INFO(status);
        CHECK(absl::StartsWith(status.message(), "box.textproto:20: "));
        CHECK(PartsOf(status).field == absl::StrCat("params.", param.key));
      }
      const absl::Status bare =
          with(param.key, testing::LegalValuesOf(param)[0], "").status();
      CHECK(absl::StrContains(
          bare.message(),
          absl::StrCat("params.", param.key, ".source: missing")));
    }
    CHECK(absl::StrContains(
        with("no_such_key", "1", " source: \"guide\"").status().message(),
        "no_such_key"));
  }
}

void CheckFails(const std::string& from, const std::string& to,
                const std::vector<std::string>& parts) {
  INFO(from);
  REQUIRE(absl::StrContains(kSystem, from));
  const absl::StatusOr<ShapeParams> params =
      ParseSystem(absl::StrReplaceAll(kSystem, {{from, to}}), "box.textproto");
  REQUIRE(params.status().code() == absl::StatusCode::kInvalidArgument);
  INFO(params.status());
  for (const std::string& part : parts) {
    CHECK(absl::StrContains(params.status().message(), part));
  }
}

TEST_CASE("system: errors have a line and a hint", "[topology]") {
  CheckFails("devices_per_node", "device_per_node",
             {"box.textproto:5: ", "did you mean 'devices_per_node'?"});
  CheckFails("latency { value: \"2us\"", "latency { vale: \"2us\"",
             {"box.textproto:14: ", "'vale'", "did you mean 'value'?"});
  CheckFails("\"16GiB\"", "\"16\"",
             {"box.textproto:4: ", "memory: ", "no unit"});
  CheckFails("\"100GBps\"", "\"100GB\"",
             {"box.textproto:9: ", "nvlink.bandwidth: ", "'GBps'"});
  CheckFails("\"500ns\"", "\"-500ns\"",
             {"box.textproto:10: ", "nvlink.latency: ", "negative"});
  CheckFails("value: 4 source: \"sheet\"", "value: 4",
             {"box.textproto:5: ", "devices_per_node.source"});
  CheckFails("\"2us\" source: \"paper\"", "\"2us\" source: \"\"",
             {"box.textproto:14: ", "nic.latency.source"});
  CheckFails("value: 4", "value: 0",
             {"box.textproto:5: ", "devices_per_node: 0"});
  CheckFails("name: \"box\"", "", {"box.textproto: ", "name: missing"});
  CheckFails("memory { value: \"16GiB\" source: \"sheet\" }", "",
             {"memory: missing"});
  CheckFails("  latency { value: \"1us\" source: \"paper\" }\n", "",
             {"pcie.latency: missing"});
  CheckFails("value: 4", "value: four", {"box.textproto:5: "});
  CHECK(absl::StrContains(FindSystem("dgx-h10").status().message(),
                          "did you mean"));
}

TEST_CASE("system: a file of one's own reads as a shipped one", "[topology]") {
  const std::string content =
      ReadFile(testing::SourcePath("topologies/dgx-h100.textproto")).value();
  const ShapeParams from_file = ParseSystem(content, "mine").value();
  CHECK(ToString(from_file) == ToString(FindSystem("dgx-h100").value()));
}

}  // namespace
}  // namespace pipewright::system_test
