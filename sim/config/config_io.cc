// Text -> protobuf message -> RunConfig. The only file that knows the
// generated schema.
#include <google/protobuf/descriptor.h>

#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "sim/base/error_parts.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/config/config_message.h"
#include "sim/config/config_rivals.h"
#include "sim/config/config_text.h"
#include "sim/config/config_values.h"
#include "sim/config/flags.h"
#include "sim/config/run_config.h"
#include "sim/config/shape_params.h"
#include "sim/cost/device.h"
#include "sim/cost/silicon.h"
#include "sim/model/lengths.h"
#include "sim/profile/profile.h"
#include "sim/proto/config.pb.h"

namespace pipewright {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;

Unit UnitOf(const FieldDescriptor* field) {
  switch (field->options().GetExtension(proto::field).unit()) {
    case proto::TIME:
      return Unit::kTime;
    case proto::BYTES:
      return Unit::kBytes;
    case proto::BANDWIDTH:
      return Unit::kBandwidth;
    default:
      return Unit::kNone;
  }
}

const FieldDescriptor* MappingOf(const FieldDescriptor* field) {
  const std::string& name =
      field->options().GetExtension(proto::field).key_of();
  return name.empty() ? nullptr
                      : field->containing_type()->FindFieldByName(name);
}

bool EndsInOneOf(absl::string_view name,
                 std::initializer_list<absl::string_view> endings) {
  for (const absl::string_view ending : endings) {
    if (absl::EndsWithIgnoreCase(name, ending)) return true;
  }
  return false;
}

// Text protobuf and YAML look alike; a section that opens with "name {" is
// what YAML has not.
bool LooksLikeTextproto(absl::string_view text) {
  while (!text.empty()) {
    const size_t end = text.find('\n');
    const absl::string_view line =
        absl::StripAsciiWhitespace(text.substr(0, end));
    text = end == absl::string_view::npos ? "" : text.substr(end + 1);
    if (line.empty() || line[0] == '#') continue;
    size_t word = 0;
    while (word < line.size() &&
           (absl::ascii_isalnum(line[word]) || line[word] == '_')) {
      ++word;
    }
    const absl::string_view rest =
        absl::StripLeadingAsciiWhitespace(line.substr(word));
    return word > 0 && absl::StartsWith(rest, "{");
  }
  return false;
}

absl::Status FillFromText(absl::string_view text, absl::string_view source,
                          ConfigMessage* target) {
  if (text.find('\0') != absl::string_view::npos) {
    return InFile(source, 0,
                  WithValue(absl::InvalidArgumentError(
                                "contains a zero byte; allowed: text"),
                            "", "text"));
  }
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(text);
  if (EndsInOneOf(source, {".txtpb", ".textproto", ".pbtxt"})) {
    return FillFromTextproto(text, source, target);
  }
  ConfigNode root;
  if (EndsInOneOf(source, {".json"})) {
    PW_ASSIGN_OR_RETURN(root, ParseJsonTree(text, source));
  } else if (EndsInOneOf(source, {".yaml", ".yml"})) {
    PW_ASSIGN_OR_RETURN(root, ParseYamlTree(text, source));
  } else if (absl::StartsWith(start, "{")) {
    PW_ASSIGN_OR_RETURN(root, ParseJsonTree(text, source));
  } else if (LooksLikeTextproto(text)) {
    return FillFromTextproto(text, source, target);
  } else {
    PW_ASSIGN_OR_RETURN(root, ParseYamlTree(text, source));
  }
  return FillFromTree(root, source, target);
}

std::string TextAt(absl::string_view path, const ConfigMessage& target) {
  const FieldAt at = FindField(*target.message, path);
  return at.message == nullptr
             ? ""
             : at.message->GetReflection()->GetString(*at.message, at.field);
}

// Was how to estimate given by --set? Then the section stays beside a choice
// that excludes it, which is an error and no silence.
bool SaysHowToEstimate(const ConfigMessage& target) {
  for (const char* path :
       {"costs.analytic.clock", "costs.analytic.contention",
        "costs.analytic.kernels", "costs.analytic.launch_time",
        "costs.analytic.silicon", "costs.analytic.speed_range"}) {
    const auto origin = target.origins.find(path);
    if (origin != target.origins.end() &&
        absl::StartsWith(origin->second.flag, "--set ")) {
      return true;
    }
  }
  return false;
}

// What a flag that stood alone stands for; "" for every other edit.
std::string ValueAlone(const ConfigEdit& edit) {
  if (!edit.value.empty() || edit.clears) return "";
  for (const ConfigFlag& flag : ConfigFlags()) {
    if (flag.flag == edit.origin) return flag.alone;
  }
  return "";
}

absl::Status ApplyLayer(const std::vector<ConfigEdit>& layer,
                        ConfigMessage* target) {
  const std::string schedule = TextAt("schedule.name", *target);
  for (const ConfigEdit& edit : layer) {
    for (const std::string& rival : RivalsOf(edit.path)) {
      if (rival == "costs.analytic" && SaysHowToEstimate(*target)) continue;
      ClearPath(rival, target, [&](const ConfigOrigin* origin) {
        return IsDetail(rival) && origin != nullptr &&
               absl::StartsWith(origin->flag, "--set ");
      });
    }
    // Own parameters belong to the schedule that was chosen with them.
    if (edit.path == "schedule.file" ||
        (edit.path == "schedule.name" && edit.value != schedule)) {
      ClearPath("schedule.params", target);
    }
  }
  for (ConfigEdit edit : layer) {
    if (const std::string alone = ValueAlone(edit); !alone.empty()) {
      // A switch takes nothing back that says more than it does.
      if (!TextAt(edit.path, *target).empty()) continue;
      edit.value = alone;
    }
    PW_RETURN_IF_ERROR(ApplyEdit(edit, target));
  }
  return absl::OkStatus();
}

ConfigMessage MessageOf(proto::RunConfig* message) {
  return {message, &UnitOf, &NumbersAt, &MappingOf, {"report"}, {}};
}

// Relative paths in a file are relative to that file.
void ResolvePath(const char* path, absl::string_view source, RunConfig* config,
                 std::optional<std::string>* file) {
  const auto origin = config->origins.find(path);
  if (!*file || absl::StartsWith(**file, "/") ||
      origin == config->origins.end() || origin->second.file.empty()) {
    return;
  }
  const size_t slash = source.rfind('/');
  if (slash == absl::string_view::npos) return;
  *file = absl::StrCat(source.substr(0, slash + 1), **file);
}

// schedule.name may hold a file, as --schedule may.
void TakeScheduleFile(absl::string_view source, RunConfig* config) {
  ScheduleChoice& schedule = config->schedule;
  if (!schedule.name || schedule.file) return;
  std::optional<std::string> path = schedule.name;
  ResolvePath("schedule.name", source, config, &path);
  if (!IsScheduleFile(*schedule.name, *path)) return;
  schedule.file = path;
  schedule.name.reset();
  config->origins["schedule.file"] = config->origins["schedule.name"];
  config->origins.erase("schedule.name");
}

// A whole backward is half B and half W.
absl::Status TakeBackward(RunConfig* config) {
  CostChoice& costs = config->costs;
  const bool uniform = costs.backward_s.has_value();
  if (!uniform && costs.stage_backward_s.empty()) return absl::OkStatus();
  const std::string whole =
      uniform ? "costs.uniform.backward" : "costs.per_stage.backward";
  const std::pair<const char*, bool> rivals[] = {
      {"costs.uniform.backward_input", costs.backward_input_s.has_value()},
      {"costs.uniform.backward_weight", costs.backward_weight_s.has_value()},
      {"costs.per_stage.backward_input", !costs.stage_backward_input_s.empty()},
      {"costs.per_stage.backward_weight",
       !costs.stage_backward_weight_s.empty()},
      {"costs.per_stage.backward", uniform && !costs.stage_backward_s.empty()}};
  for (const auto& [path, given] : rivals) {
    if (given) return BothGiven(config->Field(whole), config->Field(path));
  }
  if (uniform) {
    costs.backward_input_s = costs.backward_weight_s = *costs.backward_s / 2;
  }
  for (const double seconds : costs.stage_backward_s) {
    costs.stage_backward_input_s.push_back(seconds / 2);
    costs.stage_backward_weight_s.push_back(seconds / 2);
  }
  const ConfigOrigin origin = config->origins[whole];
  config->origins[absl::StrCat(whole, "_input")] = origin;
  config->origins[absl::StrCat(whole, "_weight")] = origin;
  config->notes.push_back(absl::StrCat(
      config->Field(whole), ": half of it is taken for B (backward_input), ",
      "half for W (backward_weight)",
      uniform
          ? absl::StrCat(", ", FormatSeconds(*costs.backward_s / 2), " each")
          : ""));
  return absl::OkStatus();
}

}  // namespace

struct ConfigText::Parsed {
  proto::RunConfig message;
  ConfigOrigins origins;
  std::string source;
};

absl::StatusOr<ConfigText> ConfigText::Parse(absl::string_view text,
                                             absl::string_view source_name) {
  auto parsed = std::make_shared<Parsed>();
  parsed->source = std::string(source_name);
  ConfigMessage target = MessageOf(&parsed->message);
  if (!source_name.empty()) {
    PW_RETURN_IF_ERROR(FillFromText(text, source_name, &target));
  }
  parsed->origins = std::move(target.origins);
  return ConfigText(std::move(parsed));
}

absl::StatusOr<RunConfig> ConfigText::With(
    const std::vector<std::vector<ConfigEdit>>& layers) const {
  const std::string& source_name = parsed_->source;
  proto::RunConfig message = parsed_->message;
  ConfigMessage target = MessageOf(&message);
  target.origins = parsed_->origins;
  // Own parameters that an earlier layer gives are those of the schedule that
  // a later one names.
  std::vector<ConfigEdit> params;
  for (std::vector<ConfigEdit> layer : layers) {
    layer.insert(layer.begin(), params.begin(), params.end());
    PW_RETURN_IF_ERROR(ApplyLayer(layer, &target));
    params.clear();
    for (const ConfigEdit& edit : layer) {
      if (absl::StartsWith(edit.path, "schedule.params.")) {
        params.push_back(edit);
      }
    }
  }
  RunConfig config;
  config.origins = std::move(target.origins);
  config.source = source_name;
  PW_RETURN_IF_ERROR(ReadFields(message, &config));
  PW_RETURN_IF_ERROR(CheckShapeParams(config));
  PW_RETURN_IF_ERROR(TakeBackward(&config));
  ResolvePath("schedule.file", source_name, &config, &config.schedule.file);
  TakeScheduleFile(source_name, &config);
  ResolvePath("system.file", source_name, &config, &config.system.file);
  ResolvePath("model.hf", source_name, &config, &config.model.hf);
  if (config.costs.profile && IsProfileFile(*config.costs.profile)) {
    ResolvePath("costs.profile", source_name, &config, &config.costs.profile);
  }
  CostChoice& costs = config.costs;
  if (costs.analytic_device && IsDeviceFile(*costs.analytic_device)) {
    ResolvePath("costs.analytic.device", source_name, &config,
                &costs.analytic_device);
  }
  if (costs.analytic_silicon && IsSiliconFile(*costs.analytic_silicon)) {
    ResolvePath("costs.analytic.silicon", source_name, &config,
                &costs.analytic_silicon);
  }
  if (config.sequences.lengths && !IsLengthLaw(*config.sequences.lengths)) {
    ResolvePath("sequences.lengths", source_name, &config,
                &config.sequences.lengths);
  }
  return config;
}

absl::StatusOr<RunConfig> ReadConfig(
    absl::string_view text, absl::string_view source_name,
    const std::vector<std::vector<ConfigEdit>>& layers) {
  PW_ASSIGN_OR_RETURN(const ConfigText parsed,
                      ConfigText::Parse(text, source_name));
  return parsed.With(layers);
}

absl::StatusOr<RunConfig> ReadConfig(absl::string_view text,
                                     absl::string_view source_name) {
  return ReadConfig(text, source_name, {});
}

std::vector<InputField> InputFields(const RunConfig& config) {
  std::vector<InputField> inputs;
  const auto add = [&](const char* field,
                       const std::optional<std::string>& path) {
    if (path) inputs.push_back({field, *path});
  };
  add("schedule.file", config.schedule.file);
  add("system.file", config.system.file);
  add("model.hf", config.model.hf);
  if (config.costs.profile && IsProfileFile(*config.costs.profile)) {
    add("costs.profile", config.costs.profile);
  }
  const CostChoice& costs = config.costs;
  if (costs.analytic_device && IsDeviceFile(*costs.analytic_device)) {
    add("costs.analytic.device", costs.analytic_device);
  }
  if (costs.analytic_silicon && IsSiliconFile(*costs.analytic_silicon)) {
    add("costs.analytic.silicon", costs.analytic_silicon);
  }
  if (config.sequences.lengths && !IsLengthLaw(*config.sequences.lengths)) {
    add("sequences.lengths", config.sequences.lengths);
  }
  return inputs;
}

std::string ValueInFolder(absl::string_view path, const std::string& value,
                          absl::string_view folder) {
  if (folder.empty() || absl::StartsWith(value, "/")) return value;
  const std::string beside = absl::StrCat(folder, value);
  bool is_file = path == "schedule.file" || path == "system.file" ||
                 path == "model.hf" ||
                 (path == "schedule.name" && IsScheduleFile(value, beside)) ||
                 (path == "costs.profile" && IsProfileFile(value)) ||
                 (path == "costs.analytic.device" && IsDeviceFile(value)) ||
                 (path == "costs.analytic.silicon" && IsSiliconFile(value)) ||
                 (path == "sequences.lengths" && !IsLengthLaw(value));
  for (const ConfigFlag& flag : ConfigFlags()) {
    if (flag.path != path || flag.is_other == nullptr) continue;
    is_file |=
        (flag.other_path == "system.file" || flag.other_path == "model.hf") &&
        flag.is_other(value);
  }
  return is_file ? beside : value;
}

std::vector<std::string> ConfigPaths() {
  return FieldPaths(proto::RunConfig::descriptor());
}

}  // namespace pipewright
