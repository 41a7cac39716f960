// system.params, and the second paths of some of its keys.
#include "sim/config/shape_params.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"
#include "sim/config/prepare.h"
#include "tests/support/shapes.h"

namespace pipewright::shape_params_test {
namespace {

using Layers = std::vector<std::vector<ConfigEdit>>;

ConfigEdit Set(const std::string& path, const std::string& value) {
  return {path, value, absl::StrCat("--set ", path, "=", value), value.empty()};
}

std::string Printed(const absl::StatusOr<RunConfig>& config) {
  INFO(config.status());
  REQUIRE(config.ok());
  return ToString(*config);
}

TEST_CASE("shape params: both paths, three syntaxes and --set are the same",
          "[config]") {
  const std::string printed =
      "system.shape: fat-tree\n"
      "system.params.nodes_per_leaf: 4\n"
      "system.params.oversubscription: 2.5\n";
  for (const char* yaml :
       {"system: {shape: fat-tree, nodes_per_leaf: 4, oversubscription: 2.5}",
        "system:\n  shape: fat-tree\n"
        "  params: {nodes_per_leaf: 4, oversubscription: 2.5}",
        "system: {shape: fat-tree, oversubscription: 2.5, "
        "params: {nodes_per_leaf: 4}}"}) {
    CHECK(Printed(ReadConfig(yaml, "a.yaml")) == printed);
  }
  for (const char* json :
       {R"({"system": {"shape": "fat-tree", "nodes_per_leaf": 4,
                       "oversubscription": 2.5}})",
        R"({"system": {"shape": "fat-tree", "params": {"nodes_per_leaf": 4,
                       "oversubscription": 2.5}}})"}) {
    CHECK(Printed(ReadConfig(json, "a.json")) == printed);
  }
  for (
      const char* textproto :
      {R"(system { shape: "fat-tree" nodes_per_leaf: 4 oversubscription: 2.5 })",
       R"(system { shape: "fat-tree"
                    params { key: "nodes_per_leaf" value: "4" }
                    params { key: "oversubscription" value: "2.5" } })"}) {
    CHECK(Printed(ReadConfig(textproto, "a.txtpb")) == printed);
  }
  for (const std::string section : {"system.", "system.params."}) {
    const Layers layers = {{Set("system.shape", "fat-tree"),
                            Set(section + "nodes_per_leaf", "4"),
                            Set(section + "oversubscription", "2.5")}};
    CHECK(Printed(ReadConfig("", "", layers)) == printed);
  }
  // Digits are kept.
  CHECK(absl::StrContains(
      Printed(ReadConfig("system { oversubscription: 1.0000000000000002 }",
                         "a.txtpb")),
      "system.params.oversubscription: 1.0000000000000002"));
}

TEST_CASE("shape params: an edit wins over the file by either path",
          "[config]") {
  const std::string files[] = {"system: {nodes_per_leaf: 4}",
                               "system: {params: {nodes_per_leaf: 4}}"};
  for (const std::string& file : files) {
    for (const std::string path :
         {"system.nodes_per_leaf", "system.params.nodes_per_leaf"}) {
      INFO(file << " " << path);
      CHECK(Printed(ReadConfig(file, "a.yaml", {{Set(path, "8")}})) ==
            "system.params.nodes_per_leaf: 8\n");
      CHECK(Printed(ReadConfig(file, "a.yaml", {{Set(path, "")}})) == "");
    }
    // A system puts aside what the file says of another, --set does not.
    const Layers layers = {{Set("system.params.oversubscription", "2")},
                           {{"system.preset", "dgx-h100", "--system"}}};
    CHECK(Printed(ReadConfig(file, "a.yaml", layers)) ==
          "system.preset: dgx-h100\nsystem.params.oversubscription: 2\n");
  }
}

TEST_CASE("shape params: --set of a shape stays beside a system", "[config]") {
  const Layers layers = {{Set("system.shape", "fat-tree")},
                         {{"system.preset", "dgx-h100", "--system"}}};
  for (const std::string file : {"", "system: {shape: node}"}) {
    INFO(file);
    const auto config = ReadConfig(file, file.empty() ? "" : "a.yaml", layers);
    REQUIRE(config.ok());
    CHECK(config->system.preset == "dgx-h100");
    CHECK(config->system.shape == "fat-tree");
  }
  // The shape of a file is that of its own system.
  const auto config = ReadConfig("system: {shape: node}", "a.yaml",
                                 {{{"system.preset", "dgx-h100", "--system"}}});
  REQUIRE(config.ok());
  CHECK_FALSE(config->system.shape);
}

TEST_CASE("shape params: messages call a field as it was given", "[config]") {
  const auto refusal = [](const std::string& file, const Layers& layers = {}) {
    const absl::Status status =
        ReadConfig(file, file.empty() ? "" : "a.yaml", layers).status();
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    return status;
  };
  const std::string allowed =
      "0 is not allowed; allowed: an integer from 1 to 1048576";
  absl::Status status = refusal("system: {nodes_per_leaf: 0}");
  CHECK(status.message() ==
        absl::StrCat("a.yaml:1: system.nodes_per_leaf: ", allowed));
  CHECK(PartsOf(status).field == "system.nodes_per_leaf");
  CHECK(PartsOf(status).value == "0");
  CHECK(PartsOf(status).line == 1);
  status = refusal("\nsystem:\n  params: {nodes_per_leaf: 0}");
  CHECK(status.message() ==
        absl::StrCat("a.yaml:3: system.params.nodes_per_leaf: ", allowed));
  status = refusal("", {{Set("system.nodes_per_leaf", "0")}});
  CHECK(status.message() == absl::StrCat("--set system.nodes_per_leaf=0: "
                                         "system.nodes_per_leaf: ",
                                         allowed));
  status = refusal("system: {nodes_per_leaf: [4]}");
  CHECK(absl::EndsWith(status.message(), "an integer from 1 to 1048576"));
  status = refusal("system: {oversubscription: much}");
  CHECK(absl::EndsWith(status.message(), "a number from 1 to 1e+06"));
  status = refusal("system: {params: {nodes_per_lef: 4}}");
  CHECK(absl::StrContains(status.message(),
                          "a.yaml:1: system.params.nodes_per_lef: "));
  CHECK(absl::StrContains(status.message(), "did you mean 'nodes_per_leaf'?"));
  for (const char* twice :
       {"system: {nodes_per_leaf: 4, params: {nodes_per_leaf: 2}}",
        "system: {params: {nodes_per_leaf: 2}, nodes_per_leaf: 4}"}) {
    status = refusal(twice);
    CHECK(absl::StrContains(status.message(), "given together with"));
    CHECK(absl::StrContains(status.message(), "system.nodes_per_leaf"));
    CHECK(absl::StrContains(status.message(), "system.params.nodes_per_leaf"));
  }
  CHECK(absl::StrContains(
      ReadConfig("system { nodes_per_leaf: 4\n"
                 "params { key: \"nodes_per_leaf\" value: \"4\" } }",
                 "a.txtpb")
          .status()
          .message(),
      "a.txtpb:1: system.nodes_per_leaf: given together with"));
}

constexpr char kSizes[] =
    "schedule: {name: gpipe}\n"
    "strategy: {pp: 2, microbatches: 2}\n"
    "costs: {uniform: {forward: 1ms, backward_input: 1ms, "
    "backward_weight: 1ms}, hop_bytes: 1MiB}\n"
    "engine: fast\n";

absl::StatusOr<PreparedRun> PrepareOn(const std::string& system) {
  const absl::StatusOr<RunConfig> config =
      ReadConfig(absl::StrCat(kSizes, "system: ", system), "a.yaml");
  INFO(config.status());
  REQUIRE(config.ok());
  return Prepare(*config);
}

constexpr char kLinks[] =
    "devices_per_node: 1, nvlink: {bandwidth: 100GBps, latency: 2us}, "
    "nic: {bandwidth: 10GBps, latency: 5us}}";

TEST_CASE("shape params: what the shape does not have is said to do nothing",
          "[config]") {
  for (const ShapeInfo* shape : AllShapes()) {
    for (const ShapeParam& param : shape->params) {
      const std::string value = testing::LegalValuesOf(param).front();
      for (const ShapeInfo* other : AllShapes()) {
        if (FindShapeParam(*other, param.key) != nullptr) continue;
        INFO(param.key << " with " << other->name);
        ShapeParams sample = testing::SampleParams(other->name, 2, 1);
        if (!BuildCluster(sample).ok()) continue;
        std::string own = absl::StrCat(param.key, ": ", value);
        for (const auto& [key, given] : sample.own) {
          absl::StrAppend(&own, ", ", key, ": ", given);
        }
        const absl::StatusOr<PreparedRun> run = PrepareOn(absl::StrCat(
            "{shape: ", other->name, ", params: {", own, "}, ", kLinks));
        INFO(run.status());
        REQUIRE(run.ok());
        bool said = false;
        for (const UnusedField& field : run->unused) {
          if (field.path != absl::StrCat("system.params.", param.key)) continue;
          said = absl::StrContains(field.warning, "has no effect unless") &&
                 absl::StrContains(field.warning, shape->name);
        }
        CHECK(said);
      }
    }
  }
}

TEST_CASE("shape params: what a shape needs is missed by its field",
          "[config]") {
  const absl::Status status =
      PrepareOn(absl::StrCat("{shape: fat-tree, ", kLinks)).status();
  CHECK(status.message() ==
        "a.yaml:5: system.params.nodes_per_leaf: missing; allowed: an integer "
        "from 1 to 1048576 (shape fat-tree)");
  CHECK(PartsOf(status).field == "system.params.nodes_per_leaf");
}

}  // namespace
}  // namespace pipewright::shape_params_test
