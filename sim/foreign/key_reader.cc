#include "sim/foreign/key_reader.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/analysis/sweep/expression.h"
#include "sim/base/check.h"
#include "sim/base/error_parts.h"
#include "sim/base/names.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

// "True" as "true", "None" as nothing; a switch without a value is on.
std::string Normal(const GivenKey& given, const ForeignKey& key, bool clears) {
  if (given.is_null) return "";
  if (given.values.empty()) {
    return given.is_list ? "" : clears ? "false" : "true";
  }
  const std::string text = absl::StrJoin(given.values, ",");
  const std::string lower = absl::AsciiStrToLower(text);
  if (lower == "none" || lower == "null" || lower == "~") {
    // "none" is also a choice of some keys.
    const auto& choices = key.choices;
    for (const std::string& choice : choices) {
      if (choice == text) return text;
    }
    return "";
  }
  if (lower == "true" || lower == "false") {
    return clears ? (lower == "true" ? "false" : "true") : lower;
  }
  return text;
}

// A flag takes as many words as its type has; others belong to nobody.
void CutValues(const ForeignKey& key, GivenKey* given) {
  const bool list = key.type == "ints" || key.type == "strs" ||
                    key.type == "floats" || key.type == "other";
  if (list) return;
  if (given->values.size() > 1) given->values.resize(1);
  if (key.type != "bool" || given->values.empty()) return;
  const std::string word = absl::AsciiStrToLower(given->values[0]);
  if (word != "true" && word != "false" && word != "none") {
    given->values.clear();
  }
}

// Ids of a framework's keys, and what else its rules may ask for.
class RuleNames : public ExpressionNames {
 public:
  RuleNames(const KeyTable& table,
            const std::map<std::string, std::string>& known)
      : table_(table), known_(known) {}

  bool IsField(absl::string_view word) const override {
    return known_.count(std::string(word)) > 0 ||
           table_.FindId(word) != nullptr;
  }
  std::string FieldOf(absl::string_view word) const override {
    return IsField(word) ? std::string(word) : "";
  }
  std::vector<std::string> Known() const override { return table_.Names(); }

 private:
  const KeyTable& table_;
  const std::map<std::string, std::string>& known_;
};

bool IsTitanModel(const std::string& name) {
  for (const auto& row : KeyRows("torchtitan_flavors")) {
    if (row.at("name") == name) return true;
  }
  return name == "flux" || name == "llama3_ft";
}

// Has the rule a condition, and does it hold for who gives flags, too?
bool IsDecided(const ForeignRule& rule) {
  return !rule.when.empty() &&
         !absl::StrContains(rule.refuses, "fields alone") &&
         !absl::StrContains(rule.refuses, "flags switch") &&
         // What a file leaves out may stand on the command line.
         !absl::StrContains(rule.refuses, "missing") &&
         !absl::StrContains(rule.refuses, "required");
}

}  // namespace

KeyReader::KeyReader(const KeyTable& table, const char* title,
                     const char* version, const char* before, std::string path,
                     std::set<std::string> said)
    : table_(table),
      title_(title),
      version_(version),
      before_(before),
      is_core_(title_ == "Megatron-Bridge"),
      path_(std::move(path)),
      said_(std::move(said)) {}

void KeyReader::Take(std::vector<GivenKey> given) {
  for (GivenKey& each : given) {
    bool clears = false;
    const ForeignKey* key = each.is_flag
                                ? table_.FindFlag(each.name, &clears)
                                : table_.FindName(each.section, each.name);
    // Sections of configuration objects are not those of the table.
    if (key == nullptr && !each.is_flag && is_core_) {
      key = table_.FindName("", each.name);
    }
    if (key == nullptr) {
      unknown_.push_back(absl::StrCat(each.Spelled(), NearestTo(each)));
      continue;
    }
    if (each.is_flag) CutValues(*key, &each);
    std::string text = Normal(each, *key, clears);
    values_[key] = {std::move(each), std::move(text)};
  }
}

std::string KeyReader::NearestTo(const GivenKey& given) const {
  const std::vector<std::string> known =
      given.is_flag ? table_.Flags() : table_.Names();
  const std::string nearest = NearestName(given.name, known);
  return nearest.empty()
             ? ""
             : absl::StrCat(" (did you mean ", given.is_flag ? "--" : "",
                            nearest, "?)");
}

void KeyReader::Assume(absl::string_view id, std::string value) {
  const ForeignKey& key = KeyOf(id);
  GivenKey given;
  const Value* const before = Find(key);
  if (before != nullptr) given = before->given;
  if (given.name.empty()) given.name = std::string(id);
  values_[&key] = {std::move(given), std::move(value)};
}

void KeyReader::Forget(absl::string_view id) { values_.erase(&KeyOf(id)); }

// The row of a name that is given, or that the version has.
const ForeignKey* KeyReader::Resolve(absl::string_view id) const {
  const ForeignKey* of_version = nullptr;
  for (const ForeignKey* key : table_.AllOfName(id)) {
    if (Find(*key) != nullptr) return key;
    for (const auto& [version, value] : key->defaults) {
      if (version == version_ && of_version == nullptr) of_version = key;
    }
  }
  return of_version != nullptr ? of_version : table_.FindId(id);
}

const ForeignKey& KeyReader::KeyOf(absl::string_view id) const {
  const ForeignKey* const key = Resolve(id);
  PW_CHECK(key != nullptr);
  return *key;
}

const KeyReader::Value* KeyReader::Find(const ForeignKey& key) const {
  const auto found = values_.find(&key);
  return found == values_.end() ? nullptr : &found->second;
}

bool KeyReader::IsGiven(absl::string_view id) {
  const ForeignKey& key = KeyOf(id);
  used_.insert(&key);
  return Find(key) != nullptr;
}

bool KeyReader::Knows(absl::string_view id) const {
  return table_.FindId(id) != nullptr;
}

bool KeyReader::Has(absl::string_view id) {
  const ForeignKey& key = KeyOf(id);
  used_.insert(&key);
  const Value* const value = Find(key);
  return value != nullptr && !value->text.empty();
}

std::string KeyReader::Text(absl::string_view id) {
  const ForeignKey& key = KeyOf(id);
  used_.insert(&key);
  const Value* const value = Find(key);
  if (value != nullptr) return value->text;
  const std::string text = key.DefaultOf(version_);
  const std::string lower = absl::AsciiStrToLower(text);
  return lower == "true" || lower == "false" ? lower
         : lower == "none"                   ? ""
                                             : text;
}

std::vector<std::string> KeyReader::List(absl::string_view id) {
  const ForeignKey& key = KeyOf(id);
  used_.insert(&key);
  const Value* const value = Find(key);
  if (value != nullptr) return value->given.values;
  return absl::StrSplit(key.DefaultOf(version_), ' ', absl::SkipEmpty());
}

bool KeyReader::On(absl::string_view id) {
  const std::string text = Text(id);
  return !text.empty() && text != "false" && text != "0";
}

absl::StatusOr<int64_t> KeyReader::Int(absl::string_view id, int64_t fallback,
                                       int64_t least) {
  const std::string text = Text(id);
  if (text.empty()) return fallback;
  const Value* const given = Find(KeyOf(id));
  const bool is_list = given != nullptr && given->given.is_list;
  int64_t value = 0;
  if (is_list || !absl::SimpleAtoi(text, &value) || value < least ||
      value > kMostForeignNumber) {
    return Wrong(id, absl::StrCat("an integer from ", least, " to ",
                                  kMostForeignNumber));
  }
  return value;
}

std::optional<double> KeyReader::Number(absl::string_view id) {
  double value = 0;
  if (!absl::SimpleAtod(Text(id), &value)) return std::nullopt;
  return value;
}

bool KeyReader::IsSaid(absl::string_view field) const {
  return said_.count(std::string(field)) > 0;
}

FieldPlace KeyReader::PlaceOf(absl::string_view id) const {
  const ForeignKey& key = KeyOf(id);
  const Value* const value = Find(key);
  if (value != nullptr && value->given.line > 0) {
    return FieldPlace::InFile(path_, value->given.line, value->given.Spelled());
  }
  const bool flag = !key.flags.empty();
  return FieldPlace::InFile(
      path_, 0, absl::StrCat(flag ? "--" : "", flag ? key.flags[0] : key.id()));
}

void KeyReader::Set(absl::string_view field, absl::string_view value,
                    absl::string_view id) {
  if (IsSaid(field)) return;
  out_.edits.push_back({std::string(field), std::string(value), PlaceOf(id)});
}

void KeyReader::SetDefault(absl::string_view field, absl::string_view value,
                           absl::string_view why) {
  if (IsSaid(field)) return;
  out_.edits.push_back(
      {std::string(field), std::string(value), absl::StrCat(path_, ": ", why)});
  defaults_.push_back(absl::StrCat(field, " ", value, " (", why, ")"));
}

void KeyReader::Note(absl::string_view text) {
  out_.notes.push_back(absl::StrCat(path_, ": ", text));
}

void KeyReader::NotModelled(absl::string_view id, absl::string_view what) {
  const ForeignKey& key = KeyOf(id);
  used_.insert(&key);
  const Value* const value = Find(key);
  const std::string name = value != nullptr && value->given.line > 0
                               ? value->given.Spelled()
                               : std::string(id);
  not_modelled_.push_back(absl::StrCat(name, " (", what, ")"));
}

absl::Status KeyReader::Wrong(absl::string_view id, absl::string_view allowed) {
  return BadValue(PlaceOf(id), Text(id), allowed);
}

absl::Status KeyReader::Refused(absl::string_view id, absl::string_view why) {
  const std::string value = Text(id);
  return FieldError(PlaceOf(id), absl::StrCat(value.empty() ? "" : value + ": ",
                                              title_, " refuses this: ", why));
}

absl::Status KeyReader::CheckRules(
    const std::map<std::string, std::string>& known) {
  const std::set<const ForeignKey*> used = used_;
  const absl::Status refused = RefusedBy(version_, known);
  // A file does not say its version: what is new does not refuse it.
  const bool older = before_.empty() || !RefusedBy(before_, known).ok();
  used_ = used;  // rules have read all, and set nothing
  if (refused.ok() || older) return refused;
  Note(absl::StrCat("newer versions refuse what older ones take: ",
                    refused.message()));
  return absl::OkStatus();
}

absl::Status KeyReader::RefusedBy(
    absl::string_view version,
    const std::map<std::string, std::string>& known) {
  for (const ForeignRule& rule : table_.rules()) {
    if (rule.version != version || !IsDecided(rule)) continue;
    // Megatron-Bridge has a trainer of its own.
    if (is_core_ && absl::StartsWith(rule.source, "megatron/training/")) {
      continue;
    }
    // "qwen3: ..." and "qwen3 with ...: ..." hold for that model.
    const std::string first =
        rule.refuses.substr(0, rule.refuses.find_first_of(" :"));
    const auto model = known.find("model");
    if (model != known.end() && first != model->second && IsTitanModel(first)) {
      continue;
    }
    const absl::Status refused = CheckRule(rule, known);
    // TOML was there before torch.compile was asked for.
    if (!refused.ok() && version == "toml" &&
        absl::StrContains(rule.refuses, "compile")) {
      Note(refused.message());
      continue;
    }
    PW_RETURN_IF_ERROR(refused);
  }
  return absl::OkStatus();
}

absl::Status KeyReader::CheckRule(
    const ForeignRule& rule, const std::map<std::string, std::string>& known) {
  const absl::StatusOr<Expression> when =
      Expression::Parse(rule.when, RuleNames(table_, known));
  if (!when.ok()) return absl::OkStatus();  // tests count these
  std::vector<SweepCell> values;
  for (const std::string& field : when->fields()) {
    const auto found = known.find(field);
    const std::string text = found != known.end() ? found->second : Text(field);
    // A number that nobody knows decides nothing.
    const std::string when_words =
        absl::StrCat(" ", absl::StrReplaceAll(rule.when, {{"(", " "}}));
    const bool asked =
        absl::StrContains(when_words, absl::StrCat(" ", field, " == none")) ||
        absl::StrContains(when_words, absl::StrCat(" ", field, " != none"));
    const ForeignKey* const key = Resolve(field);
    const bool number =
        key == nullptr || key->type == "int" || key->type == "float";
    if (text.empty() && number && !asked) return absl::OkStatus();
    // A rule asks whether a list contains a word.
    if (absl::StrContains(text, ",")) return absl::OkStatus();
    values.push_back(text.empty() ? SweepCell::Text("none")
                                  : CellOfValue(text));
  }
  if (!when->IsTrue([&](size_t index) { return values[index]; })) {
    return absl::OkStatus();
  }
  // The user's own key, if one of the rule's is given.
  for (const std::string& field : when->fields()) {
    const ForeignKey* const key = Resolve(field);
    if (key != nullptr && Find(*key) != nullptr) {
      return Refused(field, rule.refuses);
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": ", title_, " refuses this: ", rule.refuses));
}

ForeignArgs KeyReader::Finish() {
  std::vector<std::string> without_effect;
  for (const auto& [key, value] : values_) {
    const std::string name = value.given.Spelled();
    if (used_.count(key) > 0 || value.given.line == 0) continue;
    if (key->effect == KeyEffect::kNone || key->field == "@rules") {
      without_effect.push_back(name);
      continue;
    }
    if (key->effect == KeyEffect::kUnmodelled) {
      if (!key->IsNeutral(value.text, version_)) {
        not_modelled_.push_back(absl::StrCat(name, " (", key->note, ")"));
      } else {
        without_effect.push_back(name);
      }
      continue;
    }
    // No function asked for it.
    if (absl::StartsWith(key->field, "@") || key->field.empty()) {
      if (key->IsNeutral(value.text, version_)) {
        without_effect.push_back(name);
      } else {
        not_modelled_.push_back(
            absl::StrCat(name, key->note.empty() ? "" : " (", key->note,
                         key->note.empty() ? "" : ")"));
      }
      continue;
    }
    const auto word = key->values.find(value.text);
    if (value.text.empty()) continue;
    if (word != key->values.end() && word->second == "none") {
      without_effect.push_back(name);
      continue;
    }
    if (word != key->values.end() &&
        (word->second == "unmodelled" || word->second.empty())) {
      not_modelled_.push_back(absl::StrCat(name, " ", value.text));
      continue;
    }
    if (key->values.empty() || word != key->values.end()) {
      Set(key->field, word == key->values.end() ? value.text : word->second,
          key->id());
    } else {
      not_modelled_.push_back(absl::StrCat(name, " ", value.text));
    }
  }
  const auto note = [this](absl::string_view words,
                           const std::vector<std::string>& names) {
    if (!names.empty()) {
      Note(absl::StrCat(words, absl::StrJoin(names, ", ")));
    }
  };
  note("not modelled: ", not_modelled_);
  note(absl::StrCat("not known to ", title_, ": "), unknown_);
  note(absl::StrCat("defaults of ", title_, ": "), defaults_);
  note("without effect on time and memory: ", without_effect);
  return std::move(out_);
}

}  // namespace pipewright
