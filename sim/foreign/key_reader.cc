#include "sim/foreign/key_reader.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
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
#include "sim/foreign/titan_models.h"

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

// Words that a flag of this type does not take: those behind its value.
std::vector<std::string> CutValues(const ForeignKey& key, GivenKey* given) {
  const bool list = key.type == "ints" || key.type == "strs" ||
                    key.type == "floats" || key.type == "other";
  const size_t taken = key.type == "bool" ? 0 : 1;
  if (list || given->values.size() <= taken) return {};
  const std::vector<std::string> rest(given->values.begin() + taken,
                                      given->values.end());
  given->values.resize(taken);
  return rest;
}

bool IsWord(absl::string_view text, std::initializer_list<const char*> words) {
  return std::any_of(words.begin(), words.end(), [text](const char* word) {
    return absl::EqualsIgnoreCase(text, word);
  });
}

// A member of an enum or a type of PyTorch as the flag's choices have it:
// "AttnBackend.flash" or its number from 1, "torch.bfloat16".
std::string AsChoice(const std::string& text,
                     const std::vector<std::string>& choices) {
  static const auto* const types = new std::map<std::string, std::string>{
      {"bfloat16", "bf16"}, {"float16", "fp16"},      {"half", "fp16"},
      {"float32", "fp32"},  {"float8_e4m3fn", "fp8"}, {"uint8", "fp8"}};
  std::string member = text.substr(text.rfind('.') + 1);
  const auto type = types->find(member);
  if (type != types->end()) member = type->second;
  size_t number = 0;
  if (absl::SimpleAtoi(text, &number) && number > 0 &&
      number <= choices.size()) {
    member = choices[number - 1];
  }
  return std::find(choices.begin(), choices.end(), member) == choices.end()
             ? text
             : member;
}

// A default of a table: "True" as "true", "None" as nothing.
std::string AsWord(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  return lower == "true" || lower == "false" ? lower
         : lower == "none"                   ? ""
                                             : text;
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
  const std::vector<std::string> names = TitanModels();
  return std::find(names.begin(), names.end(), name) != names.end() ||
         name == "flux" || name == "llama3_ft";
}

// Has the rule a condition, and does it hold for who gives flags, too?
bool IsDecided(const ForeignRule& rule) {
  return !rule.when.empty() &&
         !absl::StrContains(rule.refuses, "fields alone") &&
         !absl::StrContains(rule.refuses, "flags switch") &&
         // What a file leaves out may stand on the command line.
         !absl::StrContains(rule.refuses, "missing") &&
         !absl::StrContains(rule.refuses, "must be given") &&
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

absl::Status KeyReader::Take(std::vector<GivenKey> given) {
  std::vector<std::string> branched;
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
      unknown_.push_back(
          absl::StrCat(Shortened(each.Spelled()), NearestTo(each)));
      continue;
    }
    if (each.is_flag) {
      const std::vector<std::string> rest = CutValues(*key, &each);
      if (key->type == "bool" && !rest.empty() &&
          IsWord(rest[0], {"true", "false"})) {
        return BadValue(PlaceOf(each), rest[0], "no value: it is a switch");
      }
      if (!rest.empty()) {
        unknown_.push_back(absl::StrCat("'",
                                        Shortened(absl::StrJoin(rest, " ")),
                                        "' behind --", each.name));
      }
    }
    std::string text = Normal(each, *key, clears);
    double number = 0;
    // Files of others write "5e8".
    if (key->type == "int" && !each.is_flag && !each.is_list &&
        text.find_first_of(".eE") != std::string::npos &&
        absl::SimpleAtod(text, &number) && std::floor(number) == number &&
        std::abs(number) < 9e15) {
      text = absl::StrCat(static_cast<int64_t>(number));
    }
    if (is_core_ && !key->choices.empty() && !each.is_list) {
      text = AsChoice(text, key->choices);
    }
    Value value = {std::move(each), std::move(text)};
    PW_RETURN_IF_ERROR(CheckValue(*key, value));
    const auto before = values_.find(key);
    if (before != values_.end()) {
      PW_RETURN_IF_ERROR(CheckScript(*key, before->second, value));
    }
    if (!value.given.branches.empty() && key->effect != KeyEffect::kNone) {
      branched.push_back(value.given.Spelled());
    }
    values_[key] = std::move(value);
  }
  if (!branched.empty()) {
    Note(absl::StrCat("taken though an if or a case may leave it out: ",
                      absl::StrJoin(branched, ", ")));
  }
  return absl::OkStatus();
}

absl::Status KeyReader::CheckValue(const ForeignKey& key,
                                   const Value& value) const {
  const auto& [given, text] = value;
  if (key.effect == KeyEffect::kNone || text.empty()) return absl::OkStatus();
  const auto wrong = [&](absl::string_view allowed) {
    const bool variable = text.find_first_of("$`") != std::string::npos;
    return BadValue(
        PlaceOf(given), text,
        absl::StrCat(allowed, variable ? "; commands are not run: give "
                                         "a variable by --env NAME=VALUE"
                                       : ""));
  };
  if (!given.ambiguous.empty()) {
    return FieldError(
        PlaceOf(given),
        absl::StrCat("branches of the script that exclude each other set ",
                     given.ambiguous, "; allowed: one of them, or --env ",
                     given.ambiguous.substr(0, given.ambiguous.find(' ')),
                     "=VALUE"));
  }
  // Trainers fill in "auto".
  if (given.is_list || text == "auto" || key.values.count(text) > 0) {
    return absl::OkStatus();
  }
  double number = 0;
  int64_t whole = 0;
  if (key.type == "int" && !absl::SimpleAtoi(text, &whole)) {
    return wrong("an integer");
  }
  if (key.type == "float" && !absl::SimpleAtod(text, &number)) {
    return wrong("a number");
  }
  if (key.type == "bool" && !IsWord(text, {"true", "false", "0", "1"})) {
    return wrong("true, false");
  }
  // A list's words may stand in one string.
  const bool words = key.type == "strs";
  if ((key.type != "str" && !words) || key.choices.empty()) {
    return absl::OkStatus();
  }
  for (const absl::string_view word : absl::StrSplit(
           text, absl::ByAnyChar(words ? ",[]'\" " : ","), absl::SkipEmpty())) {
    if (key.values.count(std::string(word)) == 0 &&
        std::none_of(key.choices.begin(), key.choices.end(),
                     [word](const std::string& choice) {
                       return absl::EqualsIgnoreCase(choice, word);
                     })) {
      return wrong(absl::StrJoin(key.choices, ", "));
    }
  }
  return absl::OkStatus();
}

absl::Status KeyReader::CheckScript(const ForeignKey& key, const Value& before,
                                    const Value& after) {
  if (key.effect == KeyEffect::kNone) return absl::OkStatus();
  const GivenKey& first = before.given;
  const GivenKey& second = after.given;
  const bool differs = before.text != after.text;
  if (differs && Exclude(first.branches, second.branches)) {
    return BadValue(PlaceOf(second), after.text,
                    absl::StrCat(before.text, " of line ", first.line,
                                 " or this, not both: one branch of the script "
                                 "has to go"));
  }
  if (first.program == 0 || second.program == 0 ||
      first.program == second.program ||
      Exclude(first.branches, second.branches)) {
    return absl::OkStatus();
  }
  // Another program of the job may have a key or two in common.
  if (!differs && ++shared_by_program_[second.program] < 3) {
    return absl::OkStatus();
  }
  return FieldError(PlaceOf(second),
                    absl::StrCat("belongs to a second training command; the "
                                 "first has it on line ",
                                 first.line, "; allowed: one command"));
}

std::string KeyReader::NearestTo(const GivenKey& given) const {
  if (given.name.size() > kMostShown) return "";
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
  return AsWord(key.DefaultOf(version_));
}

std::vector<std::string> KeyReader::List(absl::string_view id) {
  const ForeignKey& key = KeyOf(id);
  used_.insert(&key);
  const Value* const value = Find(key);
  if (value != nullptr && value->given.is_null) return {};
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

std::string KeyReader::Mapped(absl::string_view id) {
  return Mapped(id, Text(id));
}

std::string KeyReader::Mapped(absl::string_view id,
                              const std::string& value) const {
  const std::string* const word = KeyOf(id).WordOf(value);
  return word == nullptr ? value : *word;
}

bool KeyReader::IsSaid(absl::string_view field) const {
  return said_.count(std::string(field)) > 0;
}

FieldPlace KeyReader::PlaceOf(const GivenKey& given) const {
  return FieldPlace::InFile(path_, given.line, given.Spelled());
}

FieldPlace KeyReader::PlaceOf(absl::string_view id) const {
  const ForeignKey& key = KeyOf(id);
  const Value* const value = Find(key);
  if (value != nullptr && value->given.line > 0) return PlaceOf(value->given);
  const bool flag = !key.flags.empty();
  return FieldPlace::InFile(
      path_, 0, absl::StrCat(flag ? "--" : "", flag ? key.flags[0] : key.id()));
}

void KeyReader::Set(absl::string_view field, absl::string_view value,
                    absl::string_view id) {
  if (IsSaid(field)) return;
  out_.edits.push_back({std::string(field), std::string(value), PlaceOf(id)});
}

void KeyReader::Apply(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) Apply(KeyOf(id), Text(id));
}

void KeyReader::Apply(const ForeignKey& key, const std::string& text) {
  const std::string* const word = key.WordOf(text);
  // Numbers that mean something else have a word of their own.
  const bool as_is =
      key.values.empty() || key.type == "int" || key.type == "float";
  const std::string value = word != nullptr ? *word
                            : as_is         ? text
                                            : "unmodelled";
  const Value* const given = Find(key);
  if (text.empty() || value == "none") {
    if (!text.empty() && given)
      without_effect_.push_back(given->given.Spelled());
  } else if (value.empty() || value == "unmodelled") {
    const std::string name = given ? given->given.Spelled() : key.id();
    not_modelled_.push_back(absl::StrCat(name, " ", text));
  } else {
    Set(key.field, value, key.id());
  }
}

void KeyReader::Ignore(const std::vector<std::string>& fields) {
  for (const ForeignKey& key : table_.keys()) {
    for (const std::string& field : fields) {
      if (absl::StartsWith(key.field, field)) used_.insert(&key);
    }
  }
}

void KeyReader::Unused(const std::vector<std::string>& ids,
                       absl::string_view why) {
  for (const std::string& id : ids) {
    const ForeignKey& key = KeyOf(id);
    used_.insert(&key);
    const Value* const value = Find(key);
    // A dump has all keys, most of them as usual.
    if (value != nullptr && value->given.line > 0 &&
        !(is_core_ && key.IsNeutral(value->text, version_))) {
      without_effect_.push_back(
          absl::StrCat(value->given.Spelled(), " (", why, ")"));
    }
  }
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
  return FieldError(PlaceOf(id),
                    absl::StrCat(value.empty() ? "" : Shortened(value) + ": ",
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
  // Flags are checked by code that objects do not meet.
  const KeyTable& table = is_core_ ? KeyTable::Of("bridge") : table_;
  for (const ForeignRule& rule : table.rules()) {
    if (rule.version != version || !IsDecided(rule)) continue;
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
    std::string text = found != known.end() ? found->second : Text(field);
    // Objects have defaults of their own; those of sizes stand for nothing.
    const ForeignKey* const row = Resolve(field);
    const ForeignKey* const own =
        is_core_ && found == known.end() &&
                (row == nullptr || Find(*row) == nullptr)
            ? KeyTable::Of("bridge").FindName("", field)
            : nullptr;
    if (own != nullptr && !absl::StartsWith(own->field, "model.") &&
        own->field != "strategy.sequence") {
      text = AsWord(own->DefaultOf(version_));
    }
    // A section is given by its keys.
    if (text.empty() && std::any_of(values_.begin(), values_.end(),
                                    [&field](const auto& value) {
                                      return value.second.given.section ==
                                             field;
                                    })) {
      text = "given";
    }
    // A number that nobody knows decides nothing.
    const std::string when_words =
        absl::StrCat(" ", absl::StrReplaceAll(rule.when, {{"(", " "}}));
    const bool asked =
        absl::StrContains(when_words, absl::StrCat(" ", field, " == none")) ||
        absl::StrContains(when_words, absl::StrCat(" ", field, " != none"));
    const bool number =
        row == nullptr || row->type == "int" || row->type == "float";
    if (text.empty() && number && !asked) return absl::OkStatus();
    // A rule asks whether a list contains a word.
    if (absl::StrContains(text, ",")) return absl::OkStatus();
    values.push_back(text.empty() ? SweepCell::Text("none")
                                  : CellOfValue(text));
  }
  if (!when->IsTrue([&](size_t index) { return values[index]; })) {
    return absl::OkStatus();
  }
  // The user's own key: one of the rule's, or one that sets the same field.
  for (const std::string& field : when->fields()) {
    const ForeignKey* const key = Resolve(field);
    if (key == nullptr) continue;
    if (Find(*key) != nullptr) return Refused(field, rule.refuses);
    for (const auto& [other, value] : values_) {
      if (value.given.line > 0 && other->field == key->field &&
          !absl::StartsWith(key->field, "@") && !key->field.empty()) {
        return Refused(other->id(), rule.refuses);
      }
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat(path_, ": ", title_, " refuses this: ", rule.refuses));
}

ForeignArgs KeyReader::Finish() {
  for (const auto& [key, value] : values_) {
    if (used_.count(key) > 0 || value.given.line == 0) continue;
    const std::string name = value.given.Spelled();
    // Dumps have all switches; those that are off as usual set nothing.
    const bool off = is_core_ && key->type == "bool" && value.text == "false" &&
                     key->IsNeutral(value.text, version_);
    const bool sets = key->effect == KeyEffect::kMapped && !off &&
                      !key->field.empty() && key->field[0] != '@';
    if (sets) {
      Apply(*key, value.text);
    } else if (key->effect == KeyEffect::kNone || key->field == "@rules" ||
               key->IsNeutral(value.text, version_)) {
      without_effect_.push_back(name);
    } else {
      not_modelled_.push_back(
          key->note.empty() ? name : absl::StrCat(name, " (", key->note, ")"));
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
  note("without effect on time and memory: ", without_effect_);
  return std::move(out_);
}

}  // namespace pipewright
