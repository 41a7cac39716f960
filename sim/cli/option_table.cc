#include "sim/cli/option_table.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/cli/common.h"
#include "sim/cli/help.h"
#include "sim/cli/verbs.h"
#include "sim/config/config_reference.h"
#include "sim/config/flags.h"
#include "sim/cost/device.h"
#include "sim/engine/engine.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"
#include "sim/schedule/registry.h"
#include "sim/topology/registry.h"
#include "sim/topology/system.h"

namespace pipewright {
namespace {

using Words = std::vector<std::string>;

template <typename Rows, typename Name>
Words NamesOf(const Rows& rows, Name name) {
  Words names;
  for (const auto& row : rows) names.push_back(name(row));
  return names;
}

Words ScheduleNames() {
  return NamesOf(AllSchedules(),
                 [](const ScheduleInfo* info) { return info->name; });
}
Words ModelNames() {
  return NamesOf(AllModels(),
                 [](const ModelSpec& model) { return model.name; });
}
Words PaperNames() {
  Words names =
      NamesOf(AllPapers(), [](const Paper* paper) { return paper->name; });
  names.push_back("all");
  return names;
}
Words DeviceNames() {
  return NamesOf(AllDevices(),
                 [](const DeviceSpec& device) { return device.name; });
}
Words EngineNames() {
  return NamesOf(AllEngines(),
                 [](const EngineInfo& engine) { return engine.name; });
}

}  // namespace

std::vector<std::string> NamesOfField(const std::string& path) {
  if (path == "schedule.name") return ScheduleNames();
  if (path == "model.preset") return ModelNames();
  if (path == "system.preset") return SystemNames();
  if (path == "system.shape") {
    return NamesOf(AllShapes(),
                   [](const ShapeInfo* info) { return info->name; });
  }
  if (path == "costs.analytic.device") return DeviceNames();
  if (path == "costs.profile") return ProfileNames();
  if (path == "engine") return EngineNames();
  for (const FieldReference& row : ConfigReference()) {
    if (row.path != path) continue;
    if (row.type == "name" || row.type == "boolean") {
      return absl::StrSplit(row.allowed, ", ", absl::SkipEmpty());
    }
  }
  return {};
}

namespace {

// Names that an option of a verb's own takes; by the verb or "*" and the
// option. A test compares them with what the verbs refuse.
Words NamesOfOption(const std::string& verb, const std::string& option) {
  static const auto* const rows = new std::map<std::string, Words>{
      {"list WHAT",
       {"schedules", "topologies", "systems", "models", "devices", "profiles",
        "fields"}},
      {"schedule SCHEDULE", ScheduleNames()},
      {"reproduce NAME", PaperNames()},
      {"completion SHELL", {"bash", "zsh", "fish"}},
      {"init WHAT", InitTemplates()},
      {"init --like", DeviceNames()},
      {"calibrate import --device", DeviceNames()},
      {"calibrate system --system", SystemNames()},
      {"* CONFIG", ModelNames()},
      {"plan --objective", {"tokens_per_s", "cost", "energy"}},
      {"plan --progress", {"line", "json", "none"}},
      {"plan --emit", {"megatron", "bridge", "torchtitan", "deepspeed"}},
      {"plot --kind", {"scatter", "line"}},
      {"* --engine", EngineNames()},
      {"* --model", ModelNames()},
      {"* --device", {"cpu", "cuda"}},
      {"* --clock", {"virtual", "paced", "real"}},
      {"* --transport", TransportNames()},
      {"check --semantics", {"buffered", "rendezvous", "nccl"}},
      {"schedule --format",
       {"text", "json", "csv", "torch-csv", "torch-csv-comms", "svg"}},
  };
  for (const std::string& key : {verb, std::string("*")}) {
    const auto found = rows->find(absl::StrCat(key, " ", option));
    if (found != rows->end()) return found->second;
  }
  return {};
}

// "none|selective|full" names its values, "NAME|FILE" and "0..3" do not.
Words NamesInType(const std::string& type) {
  Words names = absl::StrSplit(type, '|', absl::SkipEmpty());
  const bool words =
      std::all_of(names.begin(), names.end(), [](const std::string& name) {
        return std::all_of(name.begin(), name.end(), [](char letter) {
          return (letter >= 'a' && letter <= 'z') || letter == '-';
        });
      });
  return words && names.size() > 1 ? names : Words();
}

OptionRow RowOf(const std::string& verb, const CLI::Option& option) {
  OptionRow row;
  for (const std::string& name : option.get_snames()) {
    row.names.push_back(absl::StrCat("-", name));
  }
  for (const std::string& name : option.get_lnames()) {
    row.names.push_back(absl::StrCat("--", name));
  }
  if (row.names.empty()) row.place = option.get_name(true);
  row.group = option.get_group();
  row.help = option.get_description();
  row.fallback = option.get_default_str();
  if (option.get_type_size_max() == 0) return row;
  row.value = option.get_type_name();
  if (row.value.empty()) row.value = row.place;
  row.needs_value = option.get_expected_min() > 0;
  const std::string name = row.names.empty() ? row.place : row.names.back();
  row.file = absl::StrContains(row.value, "FILE") || name == "--analytic" ||
             absl::StrContains(row.value, "PATH") || name == "CONFIG" ||
             name == "SCHEDULE" || name == "SIM" || name == "MEASURED" ||
             name == "PROFILE" || name == "PROFILES";
  if (row.group == kConfigGroup) {
    for (const ConfigFlag& flag : ConfigFlags()) {
      if (flag.flag == name) row.values = NamesOfField(flag.path);
    }
  } else {
    row.values = NamesOfOption(verb, name);
  }
  if (row.values.empty()) row.values = NamesInType(row.value);
  return row;
}

bool Missing(const CLI::App& verb) {
  return verb.get_allow_extras() ||
         absl::StartsWith(verb.get_description(), "(not available");
}

void AddVerbRows(const CLI::App& app, const std::string& path,
                 std::vector<VerbRow>* rows) {
  VerbRow row;
  row.path = path;
  row.help = app.get_description();
  for (const CLI::Option* option : app.get_options()) {
    const Words names = option->get_lnames();
    if (std::find(names.begin(), names.end(), "help") != names.end()) continue;
    row.options.push_back(RowOf(path, *option));
  }
  std::vector<const CLI::App*> below;
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    if (Missing(*verb)) continue;
    below.push_back(verb);
    row.below.push_back(verb->get_name());
  }
  rows->push_back(std::move(row));
  for (const CLI::App* verb : below) {
    AddVerbRows(*verb,
                path.empty() ? verb->get_name()
                             : absl::StrCat(path, " ", verb->get_name()),
                rows);
  }
}

}  // namespace

std::vector<VerbRow> TableOfOptions(const CLI::App& app) {
  std::vector<VerbRow> rows;
  AddVerbRows(app, "", &rows);
  for (VerbRow& row : rows) {
    if (row.path != "help") continue;
    Words* const words = &row.options.front().values;
    *words = rows.front().below;
    for (std::string& topic : HelpTopics()) words->push_back(std::move(topic));
  }
  return rows;
}

namespace {

// "-o FILE", "--steps N"; "" for what every verb has.
std::string NameOf(const CLI::Option& option) {
  const std::string name = option.get_name(option.get_positional(), true);
  if (absl::StrContains(name, "--help") ||
      absl::StrContains(name, "--version")) {
    return "";
  }
  std::string type =
      option.get_type_size_max() == 0 ? "" : option.get_type_name();
  if (!type.empty()) type = absl::StrCat(" ", type);
  return absl::StrReplaceAll(absl::StrCat(name, type), {{"|", "\\|"}});
}

void AddRows(const CLI::App& verb, const std::string& path, std::string* text) {
  std::string rows;
  for (const CLI::Option* option : verb.get_options()) {
    const std::string name = NameOf(*option);
    if (name.empty() || option->get_group() == kConfigGroup ||
        option->get_group().empty()) {
      continue;
    }
    absl::StrAppend(&rows, "| `", name, "` | ",
                    MarkdownCell(option->get_default_str()), " | ",
                    MarkdownCell(option->get_description()), " |\n");
  }
  if (!rows.empty()) {
    absl::StrAppend(text, "\n### `", path, "`\n\n", verb.get_description(),
                    ".\n\n| Option | Default | Meaning |\n|---|---|---|\n",
                    rows);
  }
  for (const CLI::App* below : verb.get_subcommands(nullptr)) {
    AddRows(*below, absl::StrCat(path, " ", below->get_name()), text);
  }
}

}  // namespace

std::string VerbReferenceMarkdown(const CLI::App& app) {
  std::string text =
      "\n## Options of each verb\n\nThe flags above set fields of the "
      "configuration. `pipewright VERB --help all` lists those that a verb "
      "takes. "
      "These are its other options.\n";
  for (const CLI::App* verb : app.get_subcommands(nullptr)) {
    AddRows(*verb, verb->get_name(), &text);
  }
  return text;
}

}  // namespace pipewright
