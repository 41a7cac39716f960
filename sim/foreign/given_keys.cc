#include "sim/foreign/given_keys.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"
#include "sim/config/config_tree.h"
#include "sim/foreign/shell_words.h"

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

void Collect(const ConfigNode& node, const std::string& section,
             std::vector<GivenKey>* keys) {
  for (const ConfigNode::Entry& entry : node.entries) {
    const ConfigNode& value = entry.value;
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

}  // namespace

std::string GivenKey::Spelled() const {
  if (!is_flag) return Joined(section, name);
  return absl::StrCat(absl::StartsWith(name, "-") ? "" : "--", name);
}

std::vector<GivenKey> KeysOfShell(absl::string_view text,
                                  const Environment& environment) {
  std::vector<GivenKey> keys;
  bool open = false;  // do words belong to the last flag?
  for (const ShellWord& word : ShellWords(text, environment)) {
    absl::string_view rest = word.text;
    open &= !word.is_first;
    const size_t equals = rest.find('=');
    const bool is_short =
        rest.size() > 1 && rest[0] == '-' && absl::ascii_isalpha(rest[1]);
    if ((absl::ConsumePrefix(&rest, "--") && !rest.empty()) || is_short) {
      const size_t sign = rest.find('=');
      GivenKey key = {.name = std::string(rest.substr(0, sign)),
                      .is_flag = true,
                      .line = word.line};
      if (sign != absl::string_view::npos) {
        key.values.emplace_back(rest.substr(sign + 1));
      }
      keys.push_back(std::move(key));
      open = true;
    } else if (equals != absl::string_view::npos &&
               absl::StrContains(rest.substr(0, equals), '.') &&
               !absl::StrContains(rest.substr(0, equals), '/')) {
      const absl::string_view name = rest.substr(0, equals);
      const size_t dot = name.rfind('.');
      keys.push_back({.section = std::string(name.substr(0, dot)),
                      .name = std::string(name.substr(dot + 1)),
                      .values = {std::string(rest.substr(equals + 1))},
                      .line = word.line});
      std::string& value = keys.back().values[0];
      keys.back().is_null = value == "null" || value == "None";
      // Quotes of hydra, within the shell's.
      if (value.size() > 1 && (value[0] == '"' || value[0] == '\'') &&
          value.back() == value[0]) {
        value = value.substr(1, value.size() - 2);
      }
      if (keys.back().is_null) keys.back().values.clear();
      open = false;
    } else if (open && !absl::EndsWith(word.text, ".py")) {
      keys.back().values.push_back(word.text);
    } else {
      open = false;
    }
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
