#include "sim/foreign/key_table.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "sim/base/check.h"

namespace pipewright {

// Made by cmake/embed.cmake: (name, content).
const std::vector<std::pair<std::string, std::string>>& EmbeddedFrameworks();

namespace {

std::vector<std::string> Split(absl::string_view text) {
  return absl::StrSplit(text, '|', absl::SkipEmpty());
}

// "a=b;c=d" by what stands before the sign.
std::map<std::string, std::string> Pairs(absl::string_view text) {
  std::map<std::string, std::string> pairs;
  for (const absl::string_view pair :
       absl::StrSplit(text, ';', absl::SkipEmpty())) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(pair, absl::MaxSplits('=', 1));
    pairs[parts.first] = parts.second;
  }
  return pairs;
}

std::string Dashed(absl::string_view flag) {
  return absl::StrReplaceAll(flag, {{"_", "-"}});
}

ForeignKey KeyOf(const std::map<std::string, std::string>& row) {
  const auto cell = [&row](const char* name) -> const std::string& {
    const auto found = row.find(name);
    PW_CHECK(found != row.end());
    return found->second;
  };
  ForeignKey key;
  for (std::string& flag : Split(cell("flag"))) {
    absl::string_view name = flag;
    const bool clears = absl::ConsumePrefix(&name, "!");
    (clears ? key.clears : key.flags).emplace_back(name);
  }
  key.names = Split(cell("key"));
  key.sections = Split(cell("section"));
  key.type = cell("type");
  for (const absl::string_view pair :
       absl::StrSplit(cell("defaults"), ';', absl::SkipEmpty())) {
    key.defaults.emplace_back(absl::StrSplit(pair, absl::MaxSplits('=', 1)));
  }
  key.choices = Split(cell("choices"));
  const std::string& effect = cell("class");
  PW_CHECK(effect == "mapped" || effect == "none" || effect == "unmodelled");
  key.effect = effect == "mapped" ? KeyEffect::kMapped
               : effect == "none" ? KeyEffect::kNone
                                  : KeyEffect::kUnmodelled;
  key.field = cell("field");
  key.values = Pairs(cell("values"));
  key.note = cell("note");
  key.source = cell("source");
  return key;
}

absl::string_view ContentOf(absl::string_view name) {
  for (const auto& [file, content] : EmbeddedFrameworks()) {
    if (file == name) return content;
  }
  return "";
}

}  // namespace

std::vector<std::map<std::string, std::string>> CsvRows(
    absl::string_view text) {
  std::vector<std::string> cells(1);
  std::vector<std::string> columns;
  std::vector<std::map<std::string, std::string>> rows;
  const auto end_line = [&] {
    if (columns.empty()) {
      columns = cells;
    } else if (cells.size() > 1 || !cells[0].empty()) {
      PW_CHECK(cells.size() == columns.size());
      auto& row = rows.emplace_back();
      for (size_t cell = 0; cell < cells.size(); ++cell) {
        row[columns[cell]] = cells[cell];
      }
    }
    cells.assign(1, "");
  };
  bool quoted = false;
  for (size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (quoted) {
      if (letter != '"') {
        cells.back() += letter;
      } else if (at + 1 < text.size() && text[at + 1] == '"') {
        cells.back() += text[++at];
      } else {
        quoted = false;
      }
    } else if (letter == '"') {
      quoted = true;
    } else if (letter == ',') {
      cells.emplace_back();
    } else if (letter == '\n') {
      end_line();
    } else if (letter != '\r') {
      cells.back() += letter;
    }
  }
  end_line();
  return rows;
}

std::vector<std::map<std::string, std::string>> KeyRows(
    absl::string_view name) {
  return CsvRows(ContentOf(name));
}

std::string ForeignKey::id() const {
  if (!names.empty()) return names[0];
  const std::string& flag = flags.empty() ? clears.at(0) : flags[0];
  return absl::StrReplaceAll(flag, {{"-", "_"}});
}

std::string ForeignKey::DefaultOf(absl::string_view version) const {
  for (const auto& [name, value] : defaults) {
    if (name == version) return value;
  }
  return defaults.empty() ? "" : defaults.back().second;
}

const std::string* ForeignKey::WordOf(const std::string& value) const {
  auto word = values.find(value);
  double number = 0;
  if (word == values.end() && absl::SimpleAtod(value, &number)) {
    word = values.find(number > 0 ? ">0" : number == 0 ? "0" : value);
  }
  return word == values.end() ? nullptr : &word->second;
}

bool ForeignKey::IsNeutral(const std::string& value,
                           absl::string_view version) const {
  const auto same = [&value](absl::string_view other) {
    return absl::EqualsIgnoreCase(value, other) ||
           (value.empty() && other == "[]");
  };
  const std::string* const word = WordOf(value);
  if (word != nullptr) return *word == "none";
  const auto neutral = values.find("neutral");
  if (neutral != values.end()) {
    for (const absl::string_view other : absl::StrSplit(neutral->second, '|')) {
      if (same(other)) return true;
    }
    return false;
  }
  const std::string fallback = DefaultOf(version);
  return value.empty() || same(fallback) ||
         (value == "false" && fallback.empty());
}

const KeyTable& KeyTable::Of(absl::string_view framework) {
  static auto* const tables = new std::map<std::string, KeyTable>;
  auto found = tables->find(std::string(framework));
  if (found == tables->end()) {
    found = tables->emplace(framework, KeyTable(framework)).first;
  }
  return found->second;
}

KeyTable::KeyTable(absl::string_view framework) {
  const std::string name(framework);
  for (const auto& row : KeyRows(name)) keys_.push_back(KeyOf(row));
  PW_CHECK(!keys_.empty());
  // Whoever launches a job gives torchrun's flags beside the framework's.
  for (const auto& row : KeyRows("launch")) keys_.push_back(KeyOf(row));
  for (const auto& row : KeyRows(name + "_rules")) {
    rules_.push_back({row.at("version"), row.at("when"), row.at("refuses"),
                      row.at("source")});
  }
  Index();
}

void KeyTable::Index() {
  for (size_t index = 0; index < keys_.size(); ++index) {
    const ForeignKey& key = keys_[index];
    for (const std::string& flag : key.flags) {
      by_flag_.try_emplace(Dashed(flag), index, false);
    }
    for (const std::string& flag : key.clears) {
      by_flag_.try_emplace(Dashed(flag), index, true);
    }
    for (const std::string& name : key.names) by_name_.emplace(name, index);
    by_id_.try_emplace(key.id(), index);
  }
}

const ForeignKey* KeyTable::FindFlag(absl::string_view flag,
                                     bool* clears) const {
  const auto found = by_flag_.find(Dashed(flag));
  if (found == by_flag_.end()) return nullptr;
  *clears = found->second.second;
  return &keys_[found->second.first];
}

const ForeignKey* KeyTable::FindName(absl::string_view section,
                                     absl::string_view name) const {
  const auto range = by_name_.equal_range(std::string(name));
  for (auto row = range.first; row != range.second; ++row) {
    const ForeignKey& key = keys_[row->second];
    if (section.empty()) return &key;
    for (const std::string& known : key.sections) {
      if (known == section) return &key;
    }
  }
  return nullptr;
}

std::vector<const ForeignKey*> KeyTable::AllOfName(
    absl::string_view name) const {
  std::vector<const ForeignKey*> all;
  const auto range = by_name_.equal_range(std::string(name));
  for (auto row = range.first; row != range.second; ++row) {
    all.push_back(&keys_[row->second]);
  }
  return all;
}

const ForeignKey* KeyTable::FindId(absl::string_view id) const {
  const auto found = by_id_.find(std::string(id));
  if (found != by_id_.end()) return &keys_[found->second];
  const size_t dot = id.rfind('.');
  if (dot != absl::string_view::npos) {
    return FindName(id.substr(0, dot), id.substr(dot + 1));
  }
  bool clears = false;
  const ForeignKey* const flag = FindFlag(id, &clears);
  return flag != nullptr ? flag : FindName("", id);
}

std::vector<std::string> KeyTable::Flags() const {
  std::vector<std::string> all;
  for (const auto& [flag, place] : by_flag_) all.push_back(flag);
  return all;
}

std::vector<std::string> KeyTable::Names() const {
  std::vector<std::string> all;
  for (const auto& [name, index] : by_name_) all.push_back(name);
  return all;
}

}  // namespace pipewright
