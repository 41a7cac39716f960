#include "sim/foreign/given_keys.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"
#include "sim/config/config_tree.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace pipewright {
namespace {

std::string Joined(absl::string_view section, absl::string_view name) {
  return section.empty() ? std::string(name) : absl::StrCat(section, ".", name);
}

std::string Scalars(const ConfigNode& node) {
  if (node.kind != ConfigNode::Kind::kList) return node.text;
  std::vector<std::string> items;
  for (const ConfigNode& item : node.items) items.push_back(Scalars(item));
  return absl::StrJoin(items, ",");
}

// The scalar that a dump writes as an object: {_target_: torch.bfloat16,
// _call_: false}, or with _name_ the member of an enum. Null for a section.
std::optional<ConfigNode> ObjectValue(const ConfigNode& node) {
  const ConfigNode* name = nullptr;
  const ConfigNode* target = nullptr;
  bool is_value = false;
  for (const ConfigNode::Entry& entry : node.entries) {
    if (!absl::StartsWith(entry.key, "_")) return std::nullopt;
    if (entry.key == "_target_") target = &entry.value;
    if (entry.key == "_args_" && !entry.value.items.empty() && !name) {
      name = &entry.value.items[0];
    }
    if (entry.key == "_name_") name = &entry.value;
    is_value |= entry.key == "_call_";
  }
  if (!target || !is_value) return std::nullopt;
  ConfigNode value = name ? *name : *target;
  if (!name) value.text = value.text.substr(value.text.rfind('.') + 1);
  return value;
}

void Collect(const ConfigNode& node, const std::string& section,
             std::vector<GivenKey>* keys) {
  for (const ConfigNode::Entry& entry : node.entries) {
    const std::optional<ConfigNode> object = ObjectValue(entry.value);
    const ConfigNode& value = object ? *object : entry.value;
    if (value.kind == ConfigNode::Kind::kMap) {
      Collect(value, Joined(section, entry.key), keys);
      continue;
    }
    GivenKey key = {.section = section, .name = entry.key, .line = entry.line};
    // A flattened dump has "model.num_layers: 4".
    const size_t dot = entry.key.rfind('.');
    if (dot != std::string::npos) {
      key.section = Joined(section, entry.key.substr(0, dot));
      key.name = entry.key.substr(dot + 1);
    }
    key.is_null = value.kind == ConfigNode::Kind::kNull;
    key.is_list = value.kind == ConfigNode::Kind::kList;
    if (key.is_list) {
      for (const ConfigNode& item : value.items) {
        key.values.push_back(Scalars(item));
      }
    } else if (!key.is_null) {
      key.values = {value.text};
    }
    keys->push_back(std::move(key));
  }
}

absl::StatusOr<std::vector<GivenKey>> KeysOfTree(
    const absl::StatusOr<ConfigNode>& tree, const std::string& path) {
  if (!tree.ok()) return tree.status();
  if (tree->kind != ConfigNode::Kind::kMap) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", tree->Describe(),
                     " is not allowed; allowed: a mapping of keys"));
  }
  std::vector<GivenKey> keys;
  Collect(*tree, "", &keys);
  return keys;
}

std::string TextOf(const toml::node& node) {
  if (const auto text = node.value<std::string>()) return *text;
  if (const auto flag = node.value_exact<bool>()) {
    return *flag ? "true" : "false";
  }
  if (const auto whole = node.value_exact<int64_t>()) {
    return absl::StrCat(*whole);
  }
  if (const auto number = node.value<double>()) return absl::StrCat(*number);
  if (const toml::array* list = node.as_array()) {
    std::vector<std::string> items;
    for (const toml::node& item : *list) items.push_back(TextOf(item));
    return absl::StrJoin(items, ",");
  }
  return "";
}

void Collect(const toml::table& table, const std::string& section,
             std::vector<GivenKey>* keys) {
  for (const auto& [name, node] : table) {
    if (const toml::table* below = node.as_table()) {
      Collect(*below, Joined(section, std::string(name.str())), keys);
      continue;
    }
    GivenKey key = {.section = section,
                    .name = std::string(name.str()),
                    .line = static_cast<int>(node.source().begin.line)};
    if (const toml::array* list = node.as_array()) {
      key.is_list = true;
      for (const toml::node& item : *list) key.values.push_back(TextOf(item));
    } else {
      key.values = {TextOf(node)};
    }
    keys->push_back(std::move(key));
  }
}

// "model.num_layers=4", "+model.num_layers=4"; behind a program also
// "mixed_precision=bf16_mixed".
bool IsOverride(absl::string_view word, bool behind_program) {
  while (absl::ConsumePrefix(&word, "+")) continue;
  const absl::string_view name = word.substr(0, word.find('='));
  if (name.size() == word.size() || name.empty() ||
      !absl::ascii_islower(name[0])) {
    return false;
  }
  return std::all_of(name.begin(), name.end(),
                     [](char letter) {
                       return absl::ascii_isalnum(letter) || letter == '_' ||
                              letter == '.';
                     }) &&
         (behind_program || absl::StrContains(name, "."));
}

// "model.transformer.num_layers": all but the last part is the section.
void SetPath(absl::string_view path, GivenKey* key) {
  const size_t dot = path.rfind('.');
  if (dot != absl::string_view::npos) {
    key->section = std::string(path.substr(0, dot));
    path.remove_prefix(dot + 1);
  }
  key->name = std::string(path);
}

// Words of commands that say something are no keys; a command or flags within
// quotes are several words.
std::vector<ShellWord> TrainingWords(std::vector<ShellWord> words) {
  std::vector<ShellWord> out;
  bool prints = false;
  for (ShellWord& word : words) {
    if (word.is_first) prints = word.text == "echo" || word.text == "printf";
    if (prints) continue;
    const size_t blank = word.text.find_first_of(" \t\n");
    const bool several =
        blank != std::string::npos &&
        (absl::StrContains(word.text, " --") ||
         (absl::StartsWith(word.text, "--") && word.text.find('=') > blank));
    if (!several) {
      out.push_back(std::move(word));
      continue;
    }
    for (const absl::string_view part : absl::StrSplit(
             word.text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty())) {
      ShellWord each = word;
      each.text = std::string(part);
      out.push_back(std::move(each));
      word.is_first = false;
    }
  }
  return out;
}

// Words that no flag has as a value: programs, short options, redirections.
bool EndsValues(absl::string_view word) {
  const size_t sign = word.find_first_not_of("0123456789&");
  return absl::EndsWith(word, ".py") ||
         (word.size() > 1 && word[0] == '-' && absl::ascii_isalpha(word[1])) ||
         (sign != absl::string_view::npos &&
          (word[sign] == '>' || word[sign] == '<'));
}

}  // namespace

std::string GivenKey::Spelled() const {
  if (!is_flag) return Joined(section, name);
  return absl::StrCat(absl::StartsWith(name, "-") ? "" : "--", name);
}

std::vector<GivenKey> KeysOfShell(absl::string_view text,
                                  const Environment& environment) {
  const std::vector<ShellWord> words =
      TrainingWords(ShellWords(text, environment));
  std::set<int> programs;  // commands that run Python
  for (const ShellWord& word : words) {
    if (absl::EndsWith(word.text, ".py") || word.text == "-m") {
      programs.insert(word.command);
    }
  }
  std::vector<GivenKey> keys;
  bool open = false;     // do words belong to the last flag?
  bool running = false;  // has the command named its program?
  for (const ShellWord& word : words) {
    absl::string_view rest = word.text;
    if (word.is_first) open = running = false;
    GivenKey key = {
        .line = word.line,
        .program = programs.count(word.command) > 0 ? word.command : 0,
        .branches = word.branches,
        .ambiguous = word.ambiguous};
    // In front of the program they are the launcher's.
    const bool is_short = running && rest.size() > 1 && rest[0] == '-' &&
                          absl::ascii_isalpha(rest[1]);
    if ((absl::ConsumePrefix(&rest, "--") && !rest.empty()) || is_short) {
      const size_t sign = rest.find('=');
      key.name = std::string(rest.substr(0, sign));
      key.is_flag = true;
      if (sign != absl::string_view::npos) {
        key.values.emplace_back(rest.substr(sign + 1));
      }
      keys.push_back(std::move(key));
      open = true;
    } else if (running && absl::ConsumePrefix(&rest, "~")) {
      // Hydra's sign for a key that is deleted.
      SetPath(rest.substr(0, rest.find('=')), &key);
      key.is_null = true;
      keys.push_back(std::move(key));
      open = false;
    } else if (IsOverride(rest, running)) {
      // Hydra's signs for a key that is new, or new or not.
      while (absl::ConsumePrefix(&rest, "+")) continue;
      const size_t equals = rest.find('=');
      SetPath(rest.substr(0, equals), &key);
      key.values = {std::string(rest.substr(equals + 1))};
      key.is_null = key.values[0] == "null" || key.values[0] == "None";
      std::string& value = key.values[0];
      // Quotes of hydra, within the shell's.
      if (value.size() > 1 && (value[0] == '"' || value[0] == '\'') &&
          value.back() == value[0]) {
        value = value.substr(1, value.size() - 2);
      }
      if (key.is_null) key.values.clear();
      keys.push_back(std::move(key));
      open = false;
    } else if (open && !EndsValues(word.text)) {
      keys.back().values.push_back(word.text);
      if (keys.back().ambiguous.empty()) keys.back().ambiguous = word.ambiguous;
    } else {
      open = false;
    }
    running |= absl::EndsWith(word.text, ".py") || word.text == "-m";
  }
  return keys;
}

absl::StatusOr<std::vector<GivenKey>> KeysOfYaml(absl::string_view text,
                                                 const std::string& path) {
  return KeysOfTree(ParseYamlTree(text, path), path);
}

absl::StatusOr<std::vector<GivenKey>> KeysOfJson(absl::string_view text,
                                                 const std::string& path) {
  return KeysOfTree(ParseJsonTree(text, path), path);
}

absl::StatusOr<std::vector<GivenKey>> KeysOfToml(absl::string_view text,
                                                 const std::string& path) {
  // The library checks neither: names of a thousand parts, "[[[".
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const auto parts = std::count(line.begin(), line.end(), '.');
    if (absl::StartsWith(line, "[[[") ||
        (absl::StartsWith(line, "[") && parts > 32)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": no name of a table: ", line.substr(0, 40)));
    }
  }
  const toml::parse_result parsed =
      toml::parse(std::string_view(text.data(), text.size()));
  if (!parsed) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ":", parsed.error().source().begin.line, ": ",
                     std::string(parsed.error().description())));
  }
  std::vector<GivenKey> keys;
  Collect(parsed.table(), "", &keys);
  return keys;
}

}  // namespace pipewright
