#include "sim/foreign/shell_words.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

constexpr size_t kMostWord = size_t{1} << 20;
constexpr int kMostNested = 100;

// Value of a variable.
using Lookup = std::function<std::optional<std::string>(const std::string&)>;

bool IsName(char letter) {
  return absl::ascii_isalnum(letter) || letter == '_';
}

// "(A + 1) * $B": whole numbers and variables of them, as $((...)) has it.
class Arithmetic {
 public:
  Arithmetic(absl::string_view text, const Lookup& lookup)
      : rest_(text), lookup_(lookup) {}

  // Nothing for what is no number here.
  std::optional<int64_t> Value() {
    const int64_t value = Sum();
    return known_ && Next() == 0 ? std::optional<int64_t>(value) : std::nullopt;
  }

 private:
  char Next() {
    while (!rest_.empty() && absl::ascii_isspace(rest_[0])) {
      rest_.remove_prefix(1);
    }
    return rest_.empty() ? 0 : rest_[0];
  }
  int64_t Unknown() {
    known_ = false;
    return 0;
  }
  int64_t Sum() {
    int64_t value = Product();
    for (char sign = Next(); sign == '+' || sign == '-'; sign = Next()) {
      rest_.remove_prefix(1);
      const int64_t right = Product();
      if (sign == '+' ? __builtin_add_overflow(value, right, &value)
                      : __builtin_sub_overflow(value, right, &value)) {
        return Unknown();
      }
    }
    return value;
  }
  int64_t Product() {
    int64_t value = Atom();
    for (char sign = Next(); sign == '*' || sign == '/' || sign == '%';
         sign = Next()) {
      rest_.remove_prefix(1);
      const int64_t right = Atom();
      if (sign == '*') {
        if (__builtin_mul_overflow(value, right, &value)) return Unknown();
      } else if (right == 0 || right == -1) {
        return Unknown();
      } else {
        value = sign == '/' ? value / right : value % right;
      }
    }
    return value;
  }
  int64_t Atom() {
    if (++depth_ > 1000) return Unknown();
    const char first = Next();
    if (first == '(') {
      rest_.remove_prefix(1);
      const int64_t value = Sum();
      if (Next() != ')') return Unknown();
      rest_.remove_prefix(1);
      return value;
    }
    size_t end = first == '$' ? 1 : 0;
    const bool braces = end == 1 && rest_.size() > 1 && rest_[1] == '{';
    end += braces ? 1 : 0;
    const size_t start = end;
    while (end < rest_.size() && IsName(rest_[end])) ++end;
    const std::string word(rest_.substr(start, end - start));
    if (braces && (end == rest_.size() || rest_[end] != '}')) return Unknown();
    rest_.remove_prefix(end + (braces ? 1 : 0));
    int64_t value = 0;
    if (absl::SimpleAtoi(word, &value)) return value;
    const std::optional<std::string> found =
        word.empty() ? std::nullopt : lookup_(word);
    return found && absl::SimpleAtoi(*found, &value) ? value : Unknown();
  }

  absl::string_view rest_;
  const Lookup& lookup_;
  bool known_ = true;
  int depth_ = 0;
};

class ShellReader {
 public:
  ShellReader(absl::string_view text, const Lookup& environment)
      : text_(text), environment_(environment) {}

  std::vector<ShellWord> Words() {
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '\n') ++line_;
      if (letter == ')' && in_pattern_) EndPattern();
      depth_ += letter == '(' ? 1 : letter == ')' && depth_ > 0 ? -1 : 0;
      if (letter == ')' || letter == '(' || IsSeparator(letter) ||
          (letter == '\n' && !in_list_)) {
        Begin();
      }
      in_list_ &= depth_ > 0;
      if (letter == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (letter == ';' && text_.substr(at_, 2) == ";;") {
        NextBranch();
        in_pattern_ = !open_.empty() && open_.back().is_case;
        at_ += 2;
      } else if (absl::ascii_isspace(letter) || letter == '(' ||
                 letter == ')' || IsSeparator(letter)) {
        ++at_;
      } else {
        Word();
      }
    }
    // Parts of a script that another one reads: flags in variables alone.
    if (std::none_of(words_.begin(), words_.end(), [](const ShellWord& word) {
          return absl::StartsWith(word.text, "--");
        })) {
      PushVariables();
    }
    return std::move(words_);
  }

 private:
  // An if or a case around what is read.
  struct Conditional {
    ShellBranch branch;
    bool is_case = false;
    std::string subject;              // of a case
    std::vector<std::string> choice;  // patterns of its branch
    bool is_open = true;              // no branch before is certain to run
    bool is_sure = true;              // all conditions before are known
    bool skips = false;               // this branch does not run
  };
  struct Setting {
    std::vector<ShellBranch> branches;
    int line = 0;
  };
  struct Variable {
    std::string text;
    std::vector<Setting> settings;
    std::string ambiguous;
  };

  static bool IsSeparator(char letter) {
    return letter == ';' || letter == '&' || letter == '|';
  }

  void Begin() {
    if (!is_first_) ++command_;
    is_first_ = true;
    declares_ = false;
  }
  // A branch, whose condition follows.
  void NextBranch() {
    if (open_.empty()) return;
    ++open_.back().branch.number;
    open_.back().skips = !open_.back().is_open;
  }
  // What the condition says of the branch; nothing: it cannot be known.
  void Decide(std::optional<bool> runs) {
    Conditional& last = open_.back();
    last.skips = !last.is_open || !runs.value_or(true);
    if (!runs) last.is_sure = false;
    if (runs && *runs) last.is_open = false;
  }
  bool Skips() const {
    return std::any_of(open_.begin(), open_.end(),
                       [](const Conditional& each) { return each.skips; });
  }
  // Those that may run or not.
  std::vector<ShellBranch> Branches() const {
    std::vector<ShellBranch> branches;
    for (const Conditional& each : open_) {
      if (!each.is_sure) branches.push_back(each.branch);
    }
    return branches;
  }

  static bool IsKnown(absl::string_view text) {
    return text.find_first_of("$`") == absl::string_view::npos;
  }

  // "[ A = B ]", "[[ -z A ]]" and the like, from the word `start`; words
  // without text have been left out.
  std::optional<bool> Test(size_t start) const {
    std::vector<std::string> words;
    for (size_t at = start; at < words_.size(); ++at) {
      const ShellWord& word = words_[at];
      if (word.command != words_[start].command || !word.ambiguous.empty() ||
          !IsKnown(word.text)) {
        return std::nullopt;
      }
      words.push_back(word.text);
    }
    if (words.size() < 3 || words.back() != (words[0] == "[" ? "]" : "]]")) {
      return std::nullopt;
    }
    words = {words.begin() + 1, words.end() - 1};
    const std::string& first = words[0];
    if (words.size() <= 2 && (first == "-n" || first == "-z")) {
      return (words.size() == 2) == (first == "-n");
    }
    const auto is_equal = [](const std::string& word) {
      return word == "=" || word == "==" || word == "!=";
    };
    if (words.size() == 2 && is_equal(words[0]))
      words.insert(words.begin(), "");
    if (words.size() == 2 && is_equal(words[1])) words.emplace_back();
    if (words.size() != 3) return std::nullopt;
    if (is_equal(words[1])) {
      if (words[2].find_first_of("*?[") != std::string::npos) {
        return std::nullopt;
      }
      return (words[0] == words[2]) == (words[1] != "!=");
    }
    int64_t left = 0;
    int64_t right = 0;
    if (!absl::SimpleAtoi(words[0], &left) ||
        !absl::SimpleAtoi(words[2], &right)) {
      return std::nullopt;
    }
    const std::string& sign = words[1];
    if (sign == "-eq") return left == right;
    if (sign == "-ne") return left != right;
    if (sign == "-gt") return left > right;
    if (sign == "-ge") return left >= right;
    if (sign == "-lt") return left < right;
    if (sign == "-le") return left <= right;
    return std::nullopt;
  }

  // The patterns of a case's branch have been read.
  void EndPattern() {
    in_pattern_ = false;
    if (open_.empty()) return;
    Conditional& last = open_.back();
    std::optional<bool> runs = false;
    for (const std::string& pattern : last.choice) {
      if (pattern == "*" ||
          (IsKnown(last.subject) && pattern == last.subject)) {
        runs = true;
        break;
      }
      if (!IsKnown(last.subject) || !IsKnown(pattern) ||
          pattern.find_first_of("*?[") != std::string::npos) {
        runs = std::nullopt;
      }
    }
    last.choice.clear();
    Decide(runs);
  }

  void PushVariables() {
    std::vector<std::pair<int, std::string>> values;
    for (const auto& [name, variable] : variables_) {
      if (!absl::StrContains(variable.text, "--")) continue;
      values.emplace_back(variable.settings.back().line, variable.text);
    }
    std::sort(values.begin(), values.end());
    for (const auto& [line, value] : values) {
      line_ = line;
      std::string word;
      Begin();
      Split(value + " ", &word);
    }
  }

  // Words that are no command's: the next one is the first of a command.
  bool IsKeyword(const std::string& word) {
    if (!is_first_ || in_list_) return false;
    if (word == "if" || word == "case") {
      open_.push_back({.branch = {++conditionals_, 0}});
      open_.back().is_case = names_subject_ = word == "case";
      condition_ = words_.size();
    } else if (word == "elif") {
      NextBranch();
      condition_ = words_.size();
    } else if (word == "else") {
      NextBranch();
      if (!open_.empty()) Decide(true);
    } else if (word == "then") {
      if (!open_.empty()) EndCondition();
    } else if (word == "fi" || word == "esac") {
      if (!open_.empty()) open_.pop_back();
      in_pattern_ = false;
    } else if (word == "export" || word == "declare" || word == "local" ||
               word == "readonly" || word == "typeset") {
      declares_ = true;
    } else {
      return word == "do" || word == "{" || word == "!" ||
             (declares_ && word[0] == '-');
    }
    return true;
  }

  void EndCondition() {
    const bool tests =
        condition_ < words_.size() &&
        (words_[condition_].text == "[" || words_[condition_].text == "[[");
    Decide(tests ? Test(condition_) : std::nullopt);
    if (tests) words_.resize(condition_);
  }

  std::optional<std::string> Find(const std::string& name) {
    const auto found = variables_.find(name);
    if (found != variables_.end()) {
      if (!found->second.ambiguous.empty()) {
        ambiguous_ = found->second.ambiguous;
      }
      return found->second.text;
    }
    return environment_ ? environment_(name) : std::nullopt;
  }

  // Sets a variable, or appends to it.
  void Assign(const std::string& name, std::string text, bool appends) {
    if (Skips()) return;
    const std::vector<ShellBranch> branches = Branches();
    if (!branches.empty() && environment_ && environment_(name)) return;
    Variable& variable = variables_[name];
    // A value that nobody gives leaves the one before.
    if (!branches.empty() && !variable.text.empty() && !IsKnown(text)) return;
    if (branches.empty() && !appends) variable = {};
    for (const Setting& other : variable.settings) {
      if (Exclude(other.branches, branches) && variable.text != text) {
        variable.ambiguous =
            absl::StrCat(name, " (lines ", other.line, " and ", line_, ")");
      }
    }
    variable.settings.push_back({branches, line_});
    variable.text = appends ? variable.text + text : std::move(text);
  }

  // "$((A * B))", "$(command)" or "`command`" at its first letter; what is no
  // number stays.
  bool Computed(std::string* word) {
    const bool number = text_.substr(at_, 3) == "$((";
    const bool quotes = text_[at_] == '`';
    if (!quotes && text_.substr(at_, 2) != "$(") return false;
    size_t end = at_ + 1;
    for (int depth = 0; end < text_.size(); ++end) {
      if (quotes ? text_[end] == '`' : text_[end] == ')' && --depth == 0) break;
      depth += text_[end] == '(' ? 1 : 0;
      line_ += text_[end] == '\n' ? 1 : 0;
    }
    end = std::min(end + 1, text_.size());
    const absl::string_view whole = text_.substr(at_, end - at_);
    std::optional<int64_t> value;
    if (number && absl::EndsWith(whole, "))")) {
      value = Arithmetic(whole.substr(3, whole.size() - 5),
                         [this](const std::string& name) { return Find(name); })
                  .Value();
    }
    *word += value ? absl::StrCat(*value) : std::string(whole);
    at_ = end;
    return true;
  }

  // A default: without its quotes, with the values of its variables.
  std::string Expanded(const std::string& text) {
    if (++nested_ > kMostNested) return text;
    const absl::string_view around = std::exchange(text_, text);
    const size_t at = std::exchange(at_, 0);
    std::string value;
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '$' || letter == '`') {
        Expand(&value);
        continue;
      }
      if (letter != '"' && letter != '\'') value += letter;
      ++at_;
    }
    text_ = around;
    at_ = at;
    --nested_;
    return value;
  }

  // "$NAME", "${NAME}", "${NAME:-default}", "${NAME:=default}" and the same
  // without colons at a '$'; anything else stays.
  void Expand(std::string* word) {
    if (Computed(word)) return;
    const size_t start = at_++;
    std::string name;
    std::optional<std::string> fallback;
    bool sets = false;
    if (at_ < text_.size() && text_[at_] == '{') {
      size_t end = at_ + 1;
      for (int depth = 1; end < text_.size(); ++end) {
        depth += text_[end] == '{' ? 1 : text_[end] == '}' ? -1 : 0;
        if (depth == 0) break;
      }
      if (end == text_.size()) return;
      name = std::string(text_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      size_t split = 0;
      while (split < name.size() && IsName(name[split])) ++split;
      const size_t sign = split + (name.substr(split, 1) == ":" ? 1 : 0);
      if (sign < name.size() && (name[sign] == '-' || name[sign] == '=')) {
        fallback = Expanded(name.substr(sign + 1));
        sets = name[sign] == '=';
        name.resize(split);
      }
    } else {
      while (at_ < text_.size() && IsName(text_[at_])) name += text_[at_++];
    }
    std::optional<std::string> found = Find(name);
    if (!found && sets) Assign(name, *fallback, false);
    if (!found) found = fallback;
    if (!found && name.find('[') == std::string::npos) {
      found = std::string(text_.substr(start, at_ - start));
    }
    // A variable that doubles itself ends here.
    if (found && word->size() + found->size() <= kMostWord) *word += *found;
  }

  void Push(std::string word) {
    if (Skips()) return;
    words_.push_back({std::move(word), line_, is_first_,
                      in_list_ ? 0 : command_, Branches(), ambiguous_});
    is_first_ = false;
  }

  // Values without quotes are split at blanks.
  void Split(const std::string& value, std::string* word) {
    for (const char letter : value) {
      if (!absl::ascii_isspace(letter)) {
        *word += letter;
      } else if (!word->empty()) {
        Push(std::move(*word));
        word->clear();
      }
    }
  }

  void Word() {
    std::string word;
    char quote = 0;
    ambiguous_.clear();
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '\n') ++line_;
      if (letter == '\\' && quote != '\'' && at_ + 1 < text_.size()) {
        if (text_[at_ + 1] == '\n') {
          ++line_;
        } else {
          word += text_[at_ + 1];
        }
        at_ += 2;
        continue;
      }
      if ((letter == '$' || letter == '`') && quote != '\'') {
        std::string value;
        Expand(&value);
        if (quote != 0 || IsAssignment(word) || absl::StrContains(value, '$') ||
            value.substr(0, 1) == "`") {
          word += value;
        } else {
          Split(value, &word);
        }
        continue;
      }
      if (letter == quote ||
          (quote == 0 && (letter == '"' || letter == '\''))) {
        quote = letter == quote ? 0 : letter;
        ++at_;
        continue;
      }
      // NAME=( and NAME+=( begin a list, whose words are words.
      if (quote == 0 && (absl::ascii_isspace(letter) || letter == ')' ||
                         letter == '(' || IsSeparator(letter))) {
        if (letter == '\n') --line_;  // the caller counts it
        break;
      }
      word += letter;
      ++at_;
    }
    if (in_pattern_ && word != "esac") {
      if (!open_.empty()) open_.back().choice.push_back(std::move(word));
      return;
    }
    if (names_subject_ && !open_.empty()) {
      in_pattern_ = word == "in";
      names_subject_ = !in_pattern_;
      if (!in_pattern_) open_.back().subject = std::move(word);
      return;
    }
    if (Assigns(word) || IsKeyword(word) || word.empty()) return;
    Push(std::move(word));
  }

  static size_t NameEnd(const std::string& word) {
    size_t end = 0;
    while (end < word.size() && IsName(word[end])) ++end;
    return end == 0 || absl::ascii_isdigit(word[0]) ? word.size() : end;
  }
  bool IsAssignment(const std::string& word) const {
    const size_t end = NameEnd(word);
    return is_first_ && !in_list_ && end < word.size() &&
           (word[end] == '=' || word.compare(end, 2, "+=") == 0);
  }
  bool Assigns(const std::string& word) {
    if (!IsAssignment(word)) return false;
    const size_t end = NameEnd(word);
    const bool appends = word[end] == '+';
    Assign(word.substr(0, end), word.substr(end + (appends ? 2 : 1)), appends);
    in_list_ = depth_ == 0 && text_.substr(at_, 1) == "(";
    return true;
  }

  absl::string_view text_;
  const Lookup& environment_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;  // of parentheses
  bool in_list_ = false;
  int command_ = 1;
  bool is_first_ = true;
  bool declares_ = false;  // export, local, ...: assignments follow
  int conditionals_ = 0;
  std::vector<Conditional> open_;
  size_t condition_ = 0;        // first word of the condition that is read
  bool names_subject_ = false;  // between "case" and its "in"
  bool in_pattern_ = false;
  int nested_ = 0;  // defaults in defaults
  std::map<std::string, Variable> variables_;
  std::string ambiguous_;  // of the word that is read
  std::vector<ShellWord> words_;
};

}  // namespace

bool Exclude(const std::vector<ShellBranch>& left,
             const std::vector<ShellBranch>& right) {
  for (size_t at = 0; at < left.size() && at < right.size(); ++at) {
    if (left[at].conditional != right[at].conditional) return false;
    if (left[at].number != right[at].number) return true;
  }
  return false;
}

std::vector<ShellWord> ShellWords(
    absl::string_view script,
    const std::function<std::optional<std::string>(const std::string&)>&
        environment) {
  return ShellReader(script, environment).Words();
}

}  // namespace pipewright
