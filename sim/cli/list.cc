#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/file.h"
#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/cli/option_table.h"
#include "sim/cli/verbs.h"
#include "sim/config/config_fields.h"
#include "sim/config/config_reference.h"
#include "sim/config/system_cluster.h"
#include "sim/cost/device.h"
#include "sim/cost/profile_costs.h"
#include "sim/engine/simgrid_platform.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"
#include "sim/report/gallery.h"
#include "sim/report/topology_svg.h"
#include "sim/schedule/registry.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

constexpr char kExact[] = "exact";

const char* MetricName(Claim::Metric metric) {
  switch (metric) {
    case Claim::Metric::kBubblePerRank:
      return "bubble, longest span of a rank - work";
    case Claim::Metric::kBubbleGlobal:
      return "bubble, global span - work";
    case Claim::Metric::kPeakActivations:
      return "peak activations";
  }
  return "";
}

Json ParamRow(const std::string& key, const std::string& fallback,
              const std::string& legal, const std::string& help) {
  return {
      {"key", key}, {"default", fallback}, {"legal", legal}, {"help", help}};
}

// Its numbers are those of the examples.
constexpr char kExampleSystem[] = "a100-roce";
constexpr int kExampleDevices = 4;

Json RowOf(const ShapeParam& param) {
  return ParamRow(param.key, param.fallback, LegalValues(param), param.help);
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

// name, summary and params of each shape.
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

// Parameters that all shapes have inside a node; keys as in the rows' params.
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

// Writes pictures to `path`, a file or a folder that exists (there SHAPE.svg
// each): of the system that `config` gives, else of an example of each shape.
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

// Writes the system that `config` gives for SimGrid. `alone`: nothing else is
// asked for.
absl::Status WritePlatform(bool alone, const ConfigOptions& config,
                           OutputFiles* files) {
  if (!config.given()) {
    return MissingValue("--system", "a system, with --simgrid-platform");
  }
  PW_ASSIGN_OR_RETURN(const RunConfig run, config.Read(files));
  PW_RETURN_IF_ERROR(files->Check());
  if (!alone) {
    return FieldError(
        "--simgrid-platform",
        "only with \"list topologies\" and without --json and --html");
  }
  RunContext context;
  PW_ASSIGN_OR_RETURN(const SystemCluster system, ClusterOf(run, &context));
  PW_ASSIGN_OR_RETURN(std::string xml, SimgridPlatformXml(*system.cluster));
  files->Put("--simgrid-platform", std::move(xml));
  return files->Write();
}

Json Schedules() {
  Json rows = Json::array();
  for (const ScheduleInfo* info : AllSchedules()) {
    Json params = Json::array();
    std::vector<ParamInfo> all = info->params;
    all.push_back(PairParam());
    Json claims = Json::array();
    for (const Claim& claim : info->claims) {
      claims.push_back(
          {{"metric", MetricName(claim.metric)},
           {"sense", claim.sense == Claim::Sense::kExact ? kExact : "at most"},
           {"formula", claim.formula},
           {"source", claim.source}});
    }
    for (const ParamInfo& param : all) {
      params.push_back(
          ParamRow(param.key, param.fallback, param.legal, param.help));
    }
    rows.push_back({{"name", info->name},
                    {"summary", info->summary},
                    {"source", info->source},
                    {"torch_name", info->torch_name},
                    {"default_vpp", info->default_vpp},
                    {"params", params},
                    {"claims", claims}});
  }
  return rows;
}

absl::StatusOr<Json> Systems() {
  Json rows = Json::array();
  for (const std::string& name : SystemNames()) {
    PW_ASSIGN_OR_RETURN(const ShapeParams system, FindSystem(name));
    rows.push_back({{"name", name},
                    {"summary", system.summary},
                    {"shape", system.shape},
                    {"devices_per_node", system.devices_per_node},
                    {"device", system.device_name},
                    {"memory_bytes", system.memory_bytes}});
  }
  return rows;
}

Json Models() {
  Json rows = Json::array();
  for (const ModelSpec& model : AllModels()) {
    const double prediction =
        static_cast<double>(model.mtp_layers) * model.MtpLayerParameters();
    Json row = {{"name", model.name}};
    for (const ModelSizeRow& size : ModelSizeRows()) {
      const absl::string_view path = size.path;
      row[std::string(absl::StripPrefix(path, "model."))] = model.*size.size;
    }
    for (const ModelPropertyRow& property : ModelPropertyRows()) {
      const absl::string_view path = property.path;
      row[std::string(absl::StripPrefix(path, "model."))] =
          model.*property.property;
    }
    row["parameters"] = static_cast<int64_t>(model.Parameters() - prediction);
    row["active_parameters"] = static_cast<int64_t>(model.ActiveParameters());
    // Beside `parameters`, as publishers count.
    row["mtp_parameters"] = static_cast<int64_t>(prediction);
    row["source"] = model.source;
    rows.push_back(std::move(row));
  }
  return rows;
}

absl::StatusOr<Json> Profiles() {
  Json rows = Json::array();
  for (const std::string& name : ProfileNames()) {
    PW_ASSIGN_OR_RETURN(const Profile profile, FindProfile(name));
    Json models = Json::array();
    for (const PassEntry& entry : profile.passes) {
      const std::string shape = ShapeName(entry.part, entry.model);
      if (IsLayer(entry.part) && std::find(models.begin(), models.end(),
                                           Json(shape)) == models.end()) {
        models.push_back(shape);
      }
    }
    rows.push_back({{"name", name},
                    {"summary", DescribeProfile(profile)},
                    {"layers", std::move(models)},
                    {"passes", profile.passes.size()}});
  }
  return rows;
}

// "8.030 B", "124.4 M": four digits.
std::string Short(const Json& count) {
  const double number = count.get<double>();
  const bool billions = number >= 1e9;
  const double shown = number / (billions ? 1e9 : 1e6);
  const int decimals = shown < 10 ? 3 : shown < 100 ? 2 : 1;
  return absl::StrFormat("%.*f %s", decimals, shown, billions ? "B" : "M");
}

std::string ModelTable(const Json& rows) {
  std::string text =
      absl::StrFormat("%-23s %6s %6s %10s %10s  %s\n", "name", "layers",
                      "hidden", "parameters", "active", "source");
  for (const Json& row : rows) {
    absl::StrAppendFormat(
        &text, "%-23s %6d %6d %10s %10s  %s\n", row["name"].get<std::string>(),
        row["layers"].get<int64_t>(), row["hidden"].get<int64_t>(),
        Short(row["parameters"]), Short(row["active_parameters"]),
        row["source"].get<std::string>());
  }
  return text;
}

Json Devices() {
  Json rows = Json::array();
  for (const DeviceSpec& device : AllDevices()) {
    rows.push_back(
        {{"name", device.name},
         {"summary",
          absl::StrFormat(
              "%s, bf16 %g TFLOP/s, fp8 %s, %s of memory at %g TB/s",
              device.device_name, device.bf16_flops / 1e12,
              device.fp8_flops > 0
                  ? absl::StrFormat("%g TFLOP/s", device.fp8_flops / 1e12)
                  : "none",
              FormatBytes(device.memory_bytes), device.hbm_bytes_per_s / 1e12)},
         {"device", device.device_name},
         {"bf16_flops", device.bf16_flops},
         {"fp8_flops", device.fp8_flops},
         {"memory_bytes_per_s", device.hbm_bytes_per_s},
         {"memory_bytes", device.memory_bytes},
         {"multiprocessors", device.multiprocessors},
         {"bf16_sustained", device.bf16_sustained},
         {"fp8_sustained", device.fp8_sustained},
         {"memory_sustained", device.hbm_sustained},
         {"attention_forward", device.attention_forward},
         {"attention_backward", device.attention_backward},
         {"collective_sustained", device.collective_sustained},
         {"fp4_flops", device.fp4_flops},
         {"architecture", device.architecture},
         {"silicon", device.silicon},
         {"silicon_by_default", device.silicon_by_default},
         {"board_watts", device.board_watts},
         {"idle_watts", device.idle_watts},
         {"bf16_joules_per_flop", device.bf16_joules_per_flop},
         {"sources", *device.sources}});
  }
  return rows;
}

// A line under the row's name: how the parameter is given, "--param unit=2".
void AddParam(absl::string_view option, const Json& param, std::string* text) {
  const std::string fallback = param["default"].get<std::string>();
  absl::StrAppendFormat(
      text, "%-18s   %s%s=%s (%s): %s\n", "", option,
      param["key"].get<std::string>(), fallback.empty() ? "VALUE" : fallback,
      param["legal"].get<std::string>(), param["help"].get<std::string>());
}

// Two lines: the claimed value, and where it is from with its conditions.
void AddClaim(const Json& claim, std::string* text) {
  absl::StrAppendFormat(
      text, "%-18s   %s: %s%s\n%-18s     source: %s\n", "",
      claim["metric"].get<std::string>(),
      claim["sense"] == kExact ? "" : claim["sense"].get<std::string>() + " ",
      claim["formula"].get<std::string>(), "",
      claim["source"].get<std::string>());
}

std::string ToText(const Json& rows) {
  size_t width = 18;
  for (const Json& row : rows) {
    width = std::max(width, row["name"].get<std::string>().size());
  }
  std::string text;
  for (const Json& row : rows) {
    absl::StrAppendFormat(&text, "%-*s %s\n", static_cast<int>(width),
                          row["name"].get<std::string>(),
                          row["summary"].get<std::string>());
    if (!row.contains("params")) continue;
    absl::StrAppendFormat(&text, "%-18s   source: %s\n", "",
                          row["source"].get<std::string>());
    for (const Json& claim : row["claims"]) AddClaim(claim, &text);
    for (const Json& param : row["params"]) {
      // Every schedule takes it; it only matters where there are pairs.
      if (param["key"] == PairParam().key) continue;
      AddParam("--param ", param, &text);
    }
  }
  return text;
}

Json Fields() {
  Json rows = Json::array();
  for (const FieldReference& field : ConfigReference()) {
    std::string summary = field.meaning;
    if (!field.fallback.empty()) {
      absl::StrAppend(&summary, " (default: ", field.fallback, ")");
    }
    rows.push_back({{"name", field.path},
                    {"summary", summary},
                    {"flag", field.flag},
                    {"type", field.type},
                    {"allowed", field.allowed},
                    {"default", field.fallback}});
  }
  return rows;
}

const std::vector<std::string>& Kinds() {
  static const auto* const kinds = new std::vector<std::string>{
      "schedules", "topologies", "systems", "models",
      "devices",   "profiles",   "fields"};
  return *kinds;
}

absl::Status PrintList(const std::string& what, bool json) {
  Json rows = Json::array();
  if (what == "schedules") {
    rows = Schedules();
  } else if (what == "topologies") {
    rows = TopologyRows();
  } else if (what == "systems") {
    PW_ASSIGN_OR_RETURN(rows, Systems());
  } else if (what == "models") {
    rows = Models();
  } else if (what == "devices") {
    rows = Devices();
  } else if (what == "profiles") {
    PW_ASSIGN_OR_RETURN(rows, Profiles());
    if (rows.empty()) {
      PrintWarnings({"no calibration profile ships with this version"});
    }
  } else if (what == "fields") {
    rows = Fields();
  } else {
    return UnknownName("list", what, Kinds());
  }
  if (!json && what == "schedules") {
    const ParamInfo& pair = PairParam();
    return Print(absl::StrFormat(
        "%severy schedule, files too: --param %s=%s (%s): %s\n", ToText(rows),
        pair.key, pair.fallback, pair.legal, pair.help));
  }
  if (!json && what == "topologies") return Print(TopologyTable());
  if (!json) return Print(what == "models" ? ModelTable(rows) : ToText(rows));
  Json object;
  object[what] = std::move(rows);
  if (what == "topologies") object["node_params"] = NodeParamRows();
  return Print(absl::StrCat(object.dump(2), "\n"));
}

struct List {
  ConfigOptions config;
  OutputFiles files;
  std::string what;
  std::string svg;
  bool json = false;
  bool markdown = false;

  absl::Status Run(const CLI::App& app) {
    if (markdown) {
      if (what != "fields" || json) {
        return FieldError("--markdown",
                          "only with \"list fields\" and without --json");
      }
      return Print(
          absl::StrCat(ConfigReferenceMarkdown(), VerbReferenceMarkdown(app)));
    }
    if (app.get_subcommand("list")->count("--svg") > 0) {
      if (what != "topologies" || json || files.wanted("--html")) {
        return FieldError(
            "--svg",
            "only with \"list topologies\" and without --json and --html");
      }
      return DrawTopologies(svg, config, &files);
    }
    if (files.wanted("--simgrid-platform")) {
      const bool alone =
          what == "topologies" && !json && !files.wanted("--html");
      return WritePlatform(alone, config, &files);
    }
    if (!files.wanted("--html")) {
      if (!config.given()) return PrintList(what, json);
      return absl::InvalidArgumentError(
          "sizes and times are for the files of --html, --svg and "
          "--simgrid-platform only");
    }
    if (what != "schedules" || json) {
      return FieldError("--html",
                        "only with \"list schedules\" and without --json");
    }
    PW_ASSIGN_OR_RETURN(const RunConfig run_config, config.Read(&files));
    PW_RETURN_IF_ERROR(files.Check());
    PW_ASSIGN_OR_RETURN(const Gallery gallery, CollectGallery(run_config));
    PrintWarnings(gallery.warnings);
    files.Put("--html", GalleryHtml(gallery));
    return files.Write();
  }
};

}  // namespace

void AddList(CLI::App* app, Action* action) {
  CLI::App* verb = app->add_subcommand("list", "Show what this version knows");
  auto list = std::make_shared<List>();
  verb->add_option("WHAT", list->what, absl::StrJoin(Kinds(), ", "))
      ->required()
      ->type_name("");
  verb->add_flag("--json", list->json, "one JSON object on standard output");
  verb->add_flag("--markdown", list->markdown,
                 "with fields: docs/config.md, every field and option");
  list->files.AddTo(verb, "--html",
                    "all schedules as pictures on the same axes, one page",
                    FileFormat::kHtml);
  verb->add_option("--svg", list->svg,
                   "topologies as pictures: links, and PCIe inside a node; of "
                   "a system if one is given, else of examples")
      ->type_name("DIR_OR_FILE")
      ->group("Output");
  list->files.AddTo(verb, "--simgrid-platform",
                    "a system as a platform file of SimGrid: its hosts, links "
                    "and whole routes (engine simgrid leaves out links that "
                    "cannot bind)",
                    FileFormat::kXml);
  list->config.AddTo(verb, ConfigOptions::File::kOption,
                     {"--system", "--pp", "--microbatches", "--forward",
                      "--backward-input", "--backward-weight", "--backward",
                      "--p2p", "--max-activations", "--held-until-weight"});
  verb->callback([app, action, list] {
    *action = [app, list] { return list->Run(*app); };
  });
}

}  // namespace pipewright
