#include "sim/foreign/shell_words.h"

#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace pipewright {
namespace {

constexpr size_t kMostWord = size_t{1} << 20;

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
      depth_ += letter == '(' ? 1 : letter == ')' && depth_ > 0 ? -1 : 0;
      is_first_ |= letter == ')' || letter == '(' || letter == ';' ||
                   letter == '&' || letter == '|' ||
                   (letter == '\n' && depth_ == 0);
      if (letter == '#') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
      } else if (absl::ascii_isspace(letter) || letter == '(' ||
                 letter == ')' || letter == ';' || letter == '&' ||
                 letter == '|') {
        ++at_;
      } else {
        Word();
      }
    }
    return std::move(words_);
  }

 private:
  std::optional<std::string> Find(const std::string& name) const {
    const auto found = variables_.find(name);
    if (found != variables_.end()) return found->second;
    return environment_ ? environment_(name) : std::nullopt;
  }

  // "$((A * B))" at a '$'; what is no number stays.
  bool Computed(std::string* word) {
    if (text_.substr(at_, 3) != "$((") return false;
    const size_t end = text_.find("))", at_);
    if (end == absl::string_view::npos) return false;
    const std::optional<int64_t> value =
        Arithmetic(text_.substr(at_ + 3, end - at_ - 3),
                   [this](const std::string& name) { return Find(name); })
            .Value();
    *word += value ? absl::StrCat(*value)
                   : std::string(text_.substr(at_, end + 2 - at_));
    at_ = end + 2;
    return true;
  }

  // "$NAME", "${NAME}", "${NAME:-default}" at a '$'; anything else stays.
  void Variable(std::string* word) {
    if (Computed(word)) return;
    const size_t start = at_++;
    std::string name;
    std::string fallback;
    bool has_fallback = false;
    if (at_ < text_.size() && text_[at_] == '{') {
      const size_t end = text_.find('}', at_);
      if (end == absl::string_view::npos) return;
      std::string inner(text_.substr(at_ + 1, end - at_ - 1));
      at_ = end + 1;
      const size_t split = inner.find(":-");
      if (split != std::string::npos) {
        has_fallback = true;
        fallback = inner.substr(split + 2);
        inner.resize(split);
      }
      name = inner;
    } else {
      while (at_ < text_.size() && IsName(text_[at_])) name += text_[at_++];
    }
    const std::optional<std::string> found = Find(name);
    if (found) {
      // A variable that doubles itself ends here.
      if (word->size() + found->size() <= kMostWord) *word += *found;
    } else if (has_fallback) {
      *word += fallback;
    } else if (name.empty() || name.find('[') == std::string::npos) {
      if (word->size() <= kMostWord) {
        *word += std::string(text_.substr(start, at_ - start));
      }
    }
  }

  void Word() {
    std::string word;
    const int line = line_;
    char quote = 0;
    bool quoted = false;
    for (; at_ < text_.size();) {
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
      if (quote != 0) {
        if (letter == quote) {
          quote = 0;
          ++at_;
          continue;
        }
        if (letter == '$' && quote == '"') {
          Variable(&word);
          continue;
        }
      } else {
        if (letter == '"' || letter == '\'') {
          quote = letter;
          quoted = true;
          ++at_;
          continue;
        }
        if (letter == '$') {
          Variable(&word);
          continue;
        }
        // NAME=( and NAME+=( begin a list, whose words are words.
        if (absl::ascii_isspace(letter) || letter == ')' || letter == ';' ||
            letter == '&' || letter == '|' || letter == '(') {
          break;
        }
      }
      word += letter;
      ++at_;
    }
    if (Assigns(word)) return;
    if (word.empty() && !quoted) return;
    if (word.empty()) return;
    words_.push_back({word, line, is_first_});
    is_first_ = false;
  }

  bool Assigns(const std::string& word) {
    size_t end = 0;
    while (end < word.size() && IsName(word[end])) ++end;
    if (end == 0 || end == word.size() || absl::ascii_isdigit(word[0])) {
      return false;
    }
    if (word.compare(end, 2, "+=") == 0) {
      variables_[word.substr(0, end)] += word.substr(end + 2);
      return true;
    }
    if (word[end] != '=') return false;
    variables_[word.substr(0, end)] = word.substr(end + 1);
    return true;
  }

  absl::string_view text_;
  const Lookup& environment_;
  size_t at_ = 0;
  int line_ = 1;
  int depth_ = 0;  // of parentheses
  bool is_first_ = true;
  std::map<std::string, std::string> variables_;
  std::vector<ShellWord> words_;
};

}  // namespace

std::vector<ShellWord> ShellWords(
    absl::string_view script,
    const std::function<std::optional<std::string>(const std::string&)>&
        environment) {
  return ShellReader(script, environment).Words();
}

}  // namespace pipewright
