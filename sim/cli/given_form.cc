#include "sim/cli/given_form.h"

#include <filesystem>
#include <initializer_list>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"
#include "sim/model/model.h"

namespace pipewright {
namespace {

using Keys = std::set<std::string>;

bool HasAny(const Keys& keys, std::initializer_list<const char*> wanted) {
  for (const char* const key : wanted) {
    if (keys.contains(key)) return true;
  }
  return false;
}

bool EndsInAny(const std::string& path,
               std::initializer_list<const char*> endings) {
  for (const char* const ending : endings) {
    if (absl::EndsWith(path, ending)) return true;
  }
  return false;
}

Keys KeysOfJsonText(absl::string_view text) {
  Keys keys;
  const absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok() || !json->is_object()) return keys;
  for (const auto& [key, value] : json->items()) keys.insert(key);
  return keys;
}

// Those that begin a line.
Keys KeysOfYamlText(absl::string_view text) {
  Keys keys;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const size_t colon = line.find(':');
    if (colon == absl::string_view::npos) continue;
    keys.insert(std::string(line.substr(0, colon)));
  }
  return keys;
}

GivenForm FormOfJson(absl::string_view text) {
  const Keys keys = KeysOfJsonText(text);
  if (HasAny(keys, {"model_type", "architectures", "hidden_size", "n_embd"})) {
    return GivenForm::kHuggingFace;
  }
  return HasAny(keys, {"train_batch_size", "train_micro_batch_size_per_gpu",
                       "gradient_accumulation_steps", "zero_optimization"})
             ? GivenForm::kFramework
             : GivenForm::kConfiguration;
}

// A recipe of Megatron-Bridge and a configuration both have `model`.
GivenForm FormOfYaml(absl::string_view text) {
  return HasAny(KeysOfYamlText(text),
                {"_target_", "train", "ddp", "mixed_precision", "comm_overlap",
                 "checkpoint", "tokenizer", "dataset"})
             ? GivenForm::kFramework
             : GivenForm::kConfiguration;
}

// A script, or lines of flags; "---" begins a document of YAML.
bool LooksLikeArguments(absl::string_view text) {
  if (absl::StartsWith(text, "#!")) return true;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    line = absl::StripLeadingAsciiWhitespace(line);
    if (line.size() > 2 && absl::StartsWith(line, "--") &&
        absl::ascii_isalpha(line[2])) {
      return true;
    }
  }
  return false;
}

// "Qwen/Qwen3-8B": a model of the local cache, no path to a configuration.
bool IsHubName(const std::string& given) {
  const std::vector<std::string> parts = absl::StrSplit(given, '/');
  return parts.size() == 2 && !parts[0].empty() && parts[0][0] != '.' &&
         !parts[1].empty() &&
         !EndsInAny(given, {".yaml", ".yml", ".json", ".txtpb", ".textproto",
                            ".pbtxt", ".sh", ".bash", ".toml", ".py"});
}

// What a verb has written is none of the forms; others read it.
absl::Status Result(const std::string& given, absl::string_view what,
                    absl::string_view verbs) {
  return BadValue("CONFIG", given,
                  absl::StrCat("a model, a configuration or a framework's "
                               "file; this is ",
                               what, " (pipewright ", verbs, ")"));
}

// One word for a preset and for something in the working folder.
void NoteBoth(const std::string& word, GivenForm form,
              std::vector<std::string>* notes) {
  std::error_code error;
  if (!std::filesystem::exists(word, error) || !FindModel(word).ok()) return;
  if (form != GivenForm::kPreset) {
    notes->push_back(absl::StrCat("CONFIG: '", word,
                                  "' is taken as the file of that name; the "
                                  "preset is --model ",
                                  word));
  } else if (std::filesystem::exists(word + "/config.json", error)) {
    notes->push_back(absl::StrCat("CONFIG: '", word,
                                  "' is taken as the preset; the folder of "
                                  "that name is ./",
                                  word));
  }
}

}  // namespace

absl::StatusOr<GivenForm> FormOf(const std::string& given) {
  std::error_code error;
  const bool exists = std::filesystem::exists(given, error);
  if (!exists || IsFolder(given)) {
    if (FindModel(given).ok()) return GivenForm::kPreset;
    if (exists) return GivenForm::kHuggingFace;
    if (IsHubName(given)) return GivenForm::kHuggingFace;
    if (absl::StrContains(given, '/') || absl::StrContains(given, '.')) {
      return GivenForm::kConfiguration;  // whose reading says what is wrong
    }
    std::vector<std::string> known;
    for (const ModelSpec& model : AllModels()) known.push_back(model.name);
    return AboutField("CONFIG", UnknownName("file or model", given, known));
  }
  if (EndsInAny(given, {".sh", ".bash", ".toml", ".py"})) {
    return GivenForm::kFramework;
  }
  if (EndsInAny(given, {".txtpb", ".textproto", ".pbtxt"})) {
    return GivenForm::kConfiguration;
  }
  if (EndsInAny(given, {".sqlite", ".db"})) {
    return Result(given, "a file of sweep", "plot");
  }
  // Whoever reads a configuration says what is wrong with the file.
  const absl::StatusOr<std::string> text = ReadHead(given);
  if (!text.ok()) return GivenForm::kConfiguration;
  if (absl::StrContains(*text, "\"traceEvents\"")) {
    return Result(given, "a trace", "diagnose, compare");
  }
  if (absl::EndsWith(given, ".json")) {
    if (KeysOfJsonText(*text).contains("iteration_s")) {
      return Result(given, "a report", "plot");
    }
    return FormOfJson(*text);
  }
  if (EndsInAny(given, {".yaml", ".yml"})) return FormOfYaml(*text);
  return LooksLikeArguments(*text) ? GivenForm::kFramework
                                   : GivenForm::kConfiguration;
}

absl::Status TakeGiven(GivenConfig* given) {
  std::string& word = given->source;
  if (word.empty()) return absl::OkStatus();
  PW_ASSIGN_OR_RETURN(const GivenForm form, FormOf(word));
  NoteBoth(word, form, &given->notes);
  if (form == GivenForm::kConfiguration) return absl::OkStatus();
  if (form == GivenForm::kFramework) {
    if (!given->arguments_file.empty()) {
      return BadValue("CONFIG", word, "a configuration, beside --from-args");
    }
    given->arguments_file = std::exchange(word, "");
    return absl::OkStatus();
  }
  for (const std::vector<ConfigEdit>& layer : given->layers) {
    for (const ConfigEdit& edit : layer) {
      if (edit.path == "model.preset" || edit.path == "model.hf") {
        return BadValue("CONFIG", word,
                        absl::StrCat("a configuration, beside ", edit.origin));
      }
    }
  }
  const std::string path =
      form == GivenForm::kPreset ? "model.preset" : "model.hf";
  std::vector<ConfigEdit>& lowest = given->layers.front();
  lowest.insert(lowest.begin(), {path, word, word});
  word.clear();
  return absl::OkStatus();
}

}  // namespace pipewright
