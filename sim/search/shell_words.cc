#include "sim/search/shell_words.h"

#include <map>

#include "absl/strings/ascii.h"

namespace pipewright {
namespace {

class ShellReader {
 public:
  explicit ShellReader(absl::string_view text) : text_(text) {}

  std::vector<ShellWord> Words() {
    while (at_ < text_.size()) {
      const char letter = text_[at_];
      if (letter == '\n') ++line_;
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
  bool IsName(char letter) const {
    return absl::ascii_isalnum(letter) || letter == '_';
  }

  // "$NAME", "${NAME}", "${NAME:-default}" at a '$'; anything else stays.
  void Variable(std::string* word) {
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
    const auto found = variables_.find(name);
    if (found != variables_.end()) {
      *word += found->second;
    } else if (has_fallback) {
      *word += fallback;
    } else if (name.empty() || name.find('[') == std::string::npos) {
      *word += std::string(text_.substr(start, at_ - start));
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
    if (!word.empty()) words_.push_back({word, line});
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
  size_t at_ = 0;
  int line_ = 1;
  std::map<std::string, std::string> variables_;
  std::vector<ShellWord> words_;
};

}  // namespace

std::vector<ShellWord> ShellWords(absl::string_view script) {
  return ShellReader(script).Words();
}

}  // namespace pipewright
