#include "sim/cli/list_topologies.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/file.h"
#include "sim/base/json.h"
#include "sim/base/status.h"
#include "sim/config/system_cluster.h"
#include "sim/report/topology_svg.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

// Its numbers are those of the examples.
constexpr char kExampleSystem[] = "a100-roce";
constexpr int kExampleDevices = 4;

Json RowOf(const ShapeParam& param) {
  return {{"key", param.key},
          {"default", param.fallback},
          {"legal", LegalValues(param)},
          {"help", param.help}};
}

void AddParam(const ShapeParam& param, std::string* text) {
  absl::StrAppendFormat(text, "%-18s   --set system.params.%s=%s (%s): %s\n",
                        "", param.key,
                        param.fallback.empty() ? "VALUE" : param.fallback,
                        LegalValues(param), param.help);
}

struct Drawn {
  std::string name;
  std::string title;
  SystemCluster system;
};

absl::StatusOr<Drawn> ExampleOf(const ShapeInfo& shape) {
  PW_ASSIGN_OR_RETURN(ShapeParams params, FindSystem(kExampleSystem));
  params.name = shape.name;
  params.shape = shape.name;
  params.nodes = shape.example_nodes;
  params.devices_per_node = kExampleDevices;
  params.nics_per_node = 0;
  for (const auto& [key, value] : shape.example) params.own[key] = value;
  params.own["pcie_roots"] = std::string("2");
  Drawn drawn = {shape.name, absl::StrCat(shape.name, ": ", shape.summary), {}};
  PW_ASSIGN_OR_RETURN(drawn.system.params, CompleteParams(params));
  PW_ASSIGN_OR_RETURN(Cluster cluster, BuildCluster(params));
  drawn.system.cluster = std::make_shared<const Cluster>(std::move(cluster));
  return drawn;
}

absl::StatusOr<Drawn> GivenSystem(const RunConfig& config) {
  RunContext context;
  PW_ASSIGN_OR_RETURN(SystemCluster system, ClusterOf(config, &context));
  const ShapeParams& params = system.params;
  if (params.nodes > kMostDrawnNodes) {
    return BadValue("system.nodes", absl::StrCat(params.nodes),
                    absl::StrCat("1 to ", kMostDrawnNodes, " in a picture"));
  }
  if (system.cluster->num_devices() > kMostDrawnDevices) {
    return BadValue("system.nodes * system.devices_per_node",
                    absl::StrCat(system.cluster->num_devices()),
                    absl::StrCat("1 to ", kMostDrawnDevices, " in a picture"));
  }
  Drawn drawn = {params.shape, "", {}};
  drawn.title = absl::StrCat(
      params.name, ": ", params.shape, ", ", params.nodes,
      params.nodes == 1 ? " node of " : " nodes of ", params.devices_per_node,
      params.devices_per_node == 1 ? " device" : " devices");
  drawn.system = std::move(system);
  return drawn;
}

std::string SvgOf(const std::vector<Drawn>& drawn) {
  std::vector<TopologyPicture> pictures;
  for (const Drawn& each : drawn) {
    pictures.push_back(
        {each.title, each.system.params, each.system.cluster.get()});
  }
  return TopologySvg(pictures);
}

}  // namespace

Json TopologyRows() {
  Json rows = Json::array();
  for (const ShapeInfo* info : AllShapes()) {
    Json params = Json::array();
    for (const ShapeParam& param : info->params) params.push_back(RowOf(param));
    rows.push_back(
        {{"name", info->name}, {"summary", info->summary}, {"params", params}});
  }
  return rows;
}

Json NodeParamRows() {
  Json params = Json::array();
  for (const ShapeParam& param : NodeParams()) params.push_back(RowOf(param));
  return params;
}

std::string TopologyTable() {
  std::string text;
  for (const ShapeInfo* info : AllShapes()) {
    absl::StrAppendFormat(&text, "%-18s %s\n", info->name, info->summary);
    for (const ShapeParam& param : info->params) AddParam(param, &text);
  }
  absl::StrAppend(&text, "every shape, for copies to the host:\n");
  for (const ShapeParam& param : NodeParams()) AddParam(param, &text);
  return text;
}

absl::Status DrawTopologies(const std::string& path,
                            const ConfigOptions& config, OutputFiles* files) {
  std::vector<Drawn> drawn;
  if (config.given()) {
    PW_ASSIGN_OR_RETURN(const RunConfig run, config.Read(files));
    PW_ASSIGN_OR_RETURN(Drawn system, GivenSystem(run));
    drawn.push_back(std::move(system));
  } else {
    for (const ShapeInfo* shape : AllShapes()) {
      PW_ASSIGN_OR_RETURN(Drawn example, ExampleOf(*shape));
      drawn.push_back(std::move(example));
    }
  }
  if (path.empty()) {
    return BadValue("--svg", "\"\"", "the path of a file or of a folder");
  }
  std::vector<std::pair<std::string, std::string>> pictures;
  if (IsFolder(path)) {
    for (const Drawn& each : drawn) {
      pictures.push_back(
          {absl::StrCat(path, "/", each.name, ".svg"), SvgOf({each})});
    }
  } else {
    pictures.push_back({path, SvgOf(drawn)});
  }
  for (const auto& [file, svg] : pictures) {
    files->AlsoWrites("--svg", file, FileFormat::kSvg);
  }
  PW_RETURN_IF_ERROR(files->Check());
  StagedFiles staged;
  for (const auto& [file, svg] : pictures) {
    PW_RETURN_IF_ERROR(Prefix("--svg", staged.Add(file, svg)));
  }
  return staged.Commit();
}

}  // namespace pipewright
