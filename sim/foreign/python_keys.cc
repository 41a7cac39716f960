// Configurations of torchtitan as Python functions, as far as literals go.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "sim/base/status.h"
#include "sim/foreign/given_keys.h"

namespace pipewright {
namespace {

class PythonKeys {
 public:
  explicit PythonKeys(absl::string_view text) : text_(text) {}

  // By the function that gives them; "": outside of all.
  std::map<std::string, std::vector<GivenKey>> Read() {
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '\n') ++line_;
      if (letter == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (letter == '"' || letter == '\'') {
        Text();
      } else if (absl::ascii_isalpha(letter) || letter == '_') {
        Word();
      } else {
        if (letter == '(' || letter == '[' || letter == '{') {
          open_.push_back(std::move(pending_));
          pending_.clear();
        } else if ((letter == ')' || letter == ']' || letter == '}') &&
                   !open_.empty()) {
          open_.pop_back();
        }
        ++at_;
      }
    }
    return std::move(functions_);
  }

 private:
  std::string Text() {
    const char quote = text_[at_];
    const bool whole = text_.substr(at_, 3) == std::string(3, quote);
    const std::string end(whole ? 3 : 1, quote);
    at_ += end.size();
    const size_t start = at_;
    const size_t close = text_.find(end, at_);
    const size_t stop = close == absl::string_view::npos ? text_.size() : close;
    line_ += static_cast<int>(
        std::count(text_.begin() + start, text_.begin() + stop, '\n'));
    at_ = std::min(stop + end.size(), text_.size());
    return std::string(text_.substr(start, stop - start));
  }
  void Blank() {
    while (at_ < text_.size() && absl::ascii_isspace(text_[at_])) {
      if (text_[at_] == '\n') ++line_;
      ++at_;
    }
  }
  std::string Name() {
    const size_t start = at_;
    while (at_ < text_.size() && (absl::ascii_isalnum(text_[at_]) ||
                                  text_[at_] == '_' || text_[at_] == '.')) {
      ++at_;
    }
    return std::string(text_.substr(start, at_ - start));
  }
  std::string Section() const {
    std::vector<std::string> names;
    for (const std::string& name : open_) {
      if (!name.empty()) names.push_back(name);
    }
    return absl::StrJoin(names, ".");
  }

  std::vector<GivenKey>& keys() { return functions_[function_]; }

  // True for what begins or ends a function.
  bool Defines(const std::string& word) {
    function_.clear();
    if (word != "def") return false;
    Blank();
    function_ = Name();
    return true;
  }

  void Word() {
    GivenKey key = {.line = line_};
    const bool is_outside =
        open_.empty() && (at_ == 0 || text_[at_ - 1] == '\n');
    key.name = Name();
    if (is_outside && Defines(key.name)) return;
    Blank();
    const auto called = functions_.find(key.name);
    if (called != functions_.end() && text_.substr(at_, 1) == "(") {
      const std::vector<GivenKey> copy = called->second;
      keys().insert(keys().end(), copy.begin(), copy.end());
    }
    if (key.name == "model_registry" && text_.substr(at_, 1) == "(") {
      return Registry();
    }
    constexpr absl::string_view kModels = "torchtitan.models.";
    if (absl::StartsWith(key.name, kModels)) {
      const std::string rest = key.name.substr(kModels.size());
      const std::string model = rest.substr(0, rest.find('.'));
      if (!model.empty() && model != "common") {
        keys().push_back({.section = "model",
                          .name = "name",
                          .values = {model},
                          .line = key.line});
      }
    }
    if (at_ + 1 >= text_.size() || text_[at_] != '=' || text_[at_ + 1] == '=') {
      return;
    }
    ++at_;
    Blank();
    // "config.training.seq_len = 8192" as well as keyword arguments.
    const size_t dot = key.name.rfind('.');
    key.section = Section();
    if (dot != std::string::npos) {
      const size_t first = key.name.find('.');
      key.section =
          first == dot ? "" : key.name.substr(first + 1, dot - first - 1);
      key.name = key.name.substr(dot + 1);
    }
    if (Value(&key)) {
      keys().push_back(std::move(key));
      return;
    }
    pending_ = key.name;  // of a call that follows
    const auto base = functions_.find(class_);
    if (base != functions_.end()) {
      const std::vector<GivenKey> copy = base->second;
      keys().insert(keys().end(), copy.begin(), copy.end());
      return;
    }
    if (class_ == "model_registry") return Registry();
    if (!class_.empty()) {
      key.values = {class_};
      keys().push_back(std::move(key));
    }
  }

  // model_registry("8B", ...): the first argument is the flavor.
  void Registry() {
    pending_.clear();
    open_.emplace_back("model_registry");
    ++at_;
    Blank();
    if (at_ >= text_.size() || (text_[at_] != '"' && text_[at_] != '\''))
      return;
    const int line = line_;
    keys().push_back({.section = "model",
                      .name = "flavor",
                      .values = {Text()},
                      .line = line});
  }

  // False for what is no literal.
  bool Value(GivenKey* key) {
    if (at_ >= text_.size()) return false;
    const char first = text_[at_];
    if (first == '"' || first == '\'') {
      key->values = {Text()};
      return true;
    }
    if (first == '[') {
      key->is_list = true;
      List(key);
      return true;
    }
    const int line = line_;
    std::string word;
    if (first == '-') {
      word = "-";
      ++at_;
    }
    word += Name();
    Blank();
    bool ends = at_ >= text_.size() || text_[at_] == ',' || text_[at_] == ')' ||
                text_[at_] == '\n' || line_ > line;
    std::string digits = absl::StrReplaceAll(word, {{"_", ""}});
    double number = 0;
    // "8 * 1024".
    int64_t factor = 0;
    int64_t product = 0;
    while (at_ < text_.size() && text_[at_] == '*' &&
           absl::SimpleAtoi(digits, &product)) {
      ++at_;
      Blank();
      if (!absl::SimpleAtoi(absl::StrReplaceAll(Name(), {{"_", ""}}),
                            &factor) ||
          __builtin_mul_overflow(product, factor, &product)) {
        break;
      }
      digits = word = absl::StrCat(product);
      Blank();
      ends = at_ >= text_.size() || text_[at_] == ',' || text_[at_] == ')' ||
             line_ > line;
    }
    // A name that somebody else sets is no value: whoever needs a number says
    // so.
    const bool named = ends && !word.empty() &&
                       (absl::ascii_isalpha(word[0]) || word[0] == '_');
    if (named && word != "True" && word != "False" && word != "None") {
      key->values = {word};
      return true;
    }
    if (ends && (word == "True" || word == "False" || word == "None" ||
                 absl::SimpleAtod(digits, &number))) {
      key->is_null = word == "None";
      if (!key->is_null) {
        key->values = {absl::SimpleAtod(digits, &number) ? digits : word};
      }
      return true;
    }
    // "SelectiveAC.Config(" names a class.
    class_ = at_ < text_.size() && text_[at_] == '('
                 ? std::string(absl::StripSuffix(word, ".Config"))
                 : "";
    return false;
  }

  // Strings and numbers; a list inside is one item with commas.
  void List(GivenKey* key) {
    ++at_;
    std::vector<std::string> inner;
    int depth = 1;
    while (at_ < text_.size() && depth > 0) {
      const char letter = text_[at_];
      if (letter == '"' || letter == '\'') {
        const std::string item = Text();
        if (depth > 1) {
          inner.push_back(item);
        } else {
          key->values.push_back(item);
        }
        continue;
      }
      if (letter == '\n') ++line_;
      depth += letter == '[' ? 1 : letter == ']' ? -1 : 0;
      if (letter == ']' && depth == 1) {
        key->values.push_back(absl::StrJoin(inner, ","));
        inner.clear();
      }
      ++at_;
    }
  }

  absl::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<std::string> open_;  // section of each open bracket
  std::string pending_;            // keyword whose value is the next call
  std::string class_;              // of that call
  std::string function_;
  std::map<std::string, std::vector<GivenKey>> functions_;
};

}  // namespace

absl::StatusOr<std::vector<GivenKey>> KeysOfPython(
    absl::string_view text, const std::string& path,
    const std::string& function) {
  std::map<std::string, std::vector<GivenKey>> functions =
      PythonKeys(text).Read();
  std::vector<GivenKey> keys = std::move(functions[""]);
  functions.erase("");
  std::vector<std::string> names;
  for (const auto& [name, given] : functions) {
    // Default values of parameters are no configuration.
    const bool configures =
        name[0] != '_' &&
        std::any_of(given.begin(), given.end(),
                    [](const GivenKey& key) { return !key.section.empty(); });
    if (configures) names.push_back(name);
  }
  const std::string one_of = absl::StrCat("--env CONFIG=NAME with one of ",
                                          absl::StrJoin(names, ", "));
  const bool is_known =
      std::find(names.begin(), names.end(), function) != names.end();
  if (!function.empty() && !is_known) {
    return BadValue(absl::StrCat(path, ": --env CONFIG"), function, one_of);
  }
  if (function.empty() && names.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": ", names.size(),
                     " functions return a configuration; allowed: ", one_of));
  }
  if (!names.empty()) {
    std::vector<GivenKey>& own =
        functions[function.empty() ? names[0] : function];
    keys.insert(keys.end(), own.begin(), own.end());
    keys.push_back({.name = kPythonFunction,
                    .values = {function.empty() ? names[0] : function}});
  }
  if (keys.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": no configuration; allowed: a function of torchtitan's "
                     "config_registry that returns one"));
  }
  return keys;
}

}  // namespace pipewright
