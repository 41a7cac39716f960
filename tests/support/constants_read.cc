// The reader of constants_page.h.
#include "tests/support/constants_page.h"

#include <algorithm>
#include <regex>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace pipewright::testing {
namespace {

using Strings = std::vector<std::string>;

bool IsWord(char letter) {
  return absl::ascii_isalnum(static_cast<unsigned char>(letter)) ||
         letter == '_';
}

bool IsDigit(char letter) {
  return absl::ascii_isdigit(static_cast<unsigned char>(letter));
}

struct Line {
  std::string code;     // without comment
  std::string bare;     // the same, without what stands in quotes
  std::string comment;  // without the slashes; of a comment alone, code is ""
};

Line Split(absl::string_view text) {
  Line line;
  char quote = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (quote == 0 && absl::StartsWith(text.substr(at), "//")) {
      line.comment =
          std::string(absl::StripAsciiWhitespace(text.substr(at + 2)));
      break;
    }
    // 100'000 has no quote.
    const bool opens =
        letter == '"' || (letter == '\'' && (at == 0 || !IsWord(text[at - 1])));
    line.code += letter;
    if (quote == 0) {
      if (opens) quote = letter;
      if (letter != '\'' || !opens) line.bare += letter;
    } else if (letter == '\\' && at + 1 < text.size()) {
      line.code += text[++at];
    } else if (letter == quote) {
      if (quote == '"') line.bare += letter;
      quote = 0;
    }
  }
  absl::StripTrailingAsciiWhitespace(&line.code);
  absl::StripTrailingAsciiWhitespace(&line.bare);
  return line;
}

Strings NumbersIn(const std::string& code) {
  Strings numbers;
  for (size_t at = 0; at < code.size();) {
    const bool point =
        code[at] == '.' && at + 1 < code.size() && IsDigit(code[at + 1]);
    const size_t start = at;
    if (IsDigit(code[at]) || point) {
      while (at < code.size() &&
             (IsWord(code[at]) || code[at] == '.' || code[at] == '\'' ||
              ((code[at] == '-' || code[at] == '+') && code[at - 1] == 'e'))) {
        ++at;
      }
      numbers.push_back(code.substr(start, at - start));
    } else if (IsWord(code[at])) {
      while (at < code.size() && IsWord(code[at])) ++at;
    } else {
      ++at;
    }
  }
  return numbers;
}

bool IsOfFormula(std::string number) {
  static const std::set<std::string> scales = {
      "0.5", "100", "1000", "1e3", "1e6", "1e9", "1e-3", "1e-6", "1e-9"};
  if (absl::EndsWith(number, ".0")) number.resize(number.size() - 2);
  return scales.contains(number) || number == "10" ||
         (number.size() == 1 && IsDigit(number[0]));
}

struct Tag {
  bool found = false;
  std::string kind, unit, text;
};

// "Of a product. [paper, s]".
Tag TagOf(const std::string& comment) {
  static const std::regex pattern(R"(^(.*?)\s*\[([a-z ]+)(?:, ([^\]]+))?\]$)");
  std::smatch match;
  if (!std::regex_match(comment, match, pattern)) return {};
  return {true, match[2], match[3], match[1]};
}

bool IsKnown(const std::string& kind) {
  const auto& all = ConstantClasses();
  return std::any_of(all.begin(), all.end(), [&](const ConstantClass& row) {
    return row.name == kind;
  });
}

std::string Allowed() {
  Strings names;
  for (const ConstantClass& row : ConstantClasses()) {
    names.push_back(absl::StrCat("[", row.name, "]"));
  }
  return absl::StrJoin(names, ", ");
}

// One file.
class Reader {
 public:
  Reader(const SourceText& source, Constants* out)
      : source_(source), out_(*out) {
    for (const absl::string_view line : absl::StrSplit(source.text, '\n')) {
      lines_.push_back(Split(line));
    }
    covered_.resize(lines_.size());
  }

  void Read() {
    for (size_t at = 0; at < lines_.size(); ++at) {
      const std::string& bare = lines_[at].bare;
      size_t place = bare.find("constexpr ");
      if (place == std::string::npos) continue;
      if (place > 0 && IsWord(bare[place - 1])) continue;
      ReadConstant(at, place + 10);
    }
    for (size_t at = 0; at < lines_.size(); ++at) {
      if (IsComment(at) && (at + 1 == lines_.size() || !IsComment(at + 1))) {
        ReadFunction(at);
      }
    }
    if (source_.is_model) FindOthers();
    std::sort(
        rows_.begin(), rows_.end(),
        [](const Constant& a, const Constant& b) { return a.line < b.line; });
    out_.rows.insert(out_.rows.end(), rows_.begin(), rows_.end());
  }

 private:
  bool IsComment(size_t at) const {
    return lines_[at].code.empty() && !lines_[at].comment.empty();
  }
  bool IsEmpty(size_t at) const {
    return lines_[at].code.empty() && lines_[at].comment.empty();
  }
  void Problem(size_t at, const std::string& what) {
    out_.problems.push_back(
        absl::StrCat(source_.path, ":", at + 1, ": ", what));
  }

  // Text of the comment that ends in line `last`; `first` is where it begins.
  std::string CommentTo(size_t last, size_t* first) const {
    *first = last;
    while (*first > 0 && IsComment(*first - 1)) --*first;
    Strings parts;
    for (size_t at = *first; at <= last; ++at) {
      parts.push_back(lines_[at].comment);
    }
    return absl::StrJoin(parts, " ");
  }

  Tag TagFor(size_t first, size_t last) {
    for (size_t at = first; at <= last; ++at) {
      const Tag tag = TagOf(lines_[at].comment);
      if (tag.found) return tag;
    }
    for (size_t at = first; at > 0 && !IsEmpty(at - 1); --at) {
      if (!IsComment(at - 1)) continue;
      used_.insert(at - 1);
      size_t begin = 0;
      return TagOf(CommentTo(at - 1, &begin));
    }
    return {};
  }

  void Add(size_t at, std::string name, std::string value, const Tag& tag) {
    rows_.push_back({.file = source_.path,
                     .line = static_cast<int>(at) + 1,
                     .name = std::move(name),
                     .value = std::move(value),
                     .unit = tag.unit,
                     .kind = tag.kind,
                     .source = tag.text});
  }

  void ReadConstant(size_t first, size_t place) {
    std::string text;
    size_t last = first;
    for (int depth = 0;; ++last, place = 0) {
      if (last == lines_.size()) return;
      const std::string& bare = lines_[last].bare;
      size_t end = place;
      for (; end < bare.size(); ++end) {
        depth += (bare[end] == '{') - (bare[end] == '}');
        if (bare[end] == ';' && depth == 0) break;
      }
      absl::StrAppend(&text, " ", bare.substr(place, end - place));
      if (end < bare.size()) break;
    }
    const size_t head_end = text.find_first_of("={(");
    if (head_end == std::string::npos || text[head_end] == '(') return;
    static const std::regex head_pattern(
        R"(^(.*?)(\w+)\s*((\[[^\]]*\]\s*)*)$)");
    const std::string head(
        absl::StripAsciiWhitespace(text.substr(0, head_end)));
    std::smatch match;
    if (!std::regex_match(head, match, head_pattern)) return;
    static const std::regex arithmetic(
        R"(\b(double|float|int|size_t|u?int\d+_t|auto)\b)");
    std::string value = text.substr(head_end + (text[head_end] == '='));
    absl::RemoveExtraAsciiWhitespace(&value);
    value = absl::StrReplaceAll(value, {{"{ ", "{"}, {" }", "}"}});
    const std::string type = match[1];
    if (!std::regex_search(type, arithmetic) && NumbersIn(value).empty()) {
      return;
    }
    std::fill(covered_.begin() + static_cast<ptrdiff_t>(first),
              covered_.begin() + static_cast<ptrdiff_t>(last) + 1, true);
    const Tag tag = TagFor(first, last);
    const std::string name = match[2];
    if (!tag.found) {
      Problem(first, absl::StrCat(name,
                                  " has no class; the comment above it "
                                  "must end in one of ",
                                  Allowed()));
    } else if (!IsKnown(tag.kind)) {
      Problem(first, absl::StrCat(name, ": unknown class [", tag.kind,
                                  "]; known are ", Allowed()));
    } else {
      Add(first, name, value, tag);
    }
  }

  // The function below a comment that ends in line `last`.
  void ReadFunction(size_t last) {
    if (used_.contains(last)) return;
    size_t begin = 0;
    const Tag tag = TagOf(CommentTo(last, &begin));
    if (!tag.found || !IsKnown(tag.kind)) return;
    std::string head, values;
    int depth = 0;
    bool opened = false;
    std::string before = ";";
    for (size_t at = last + 1; at < lines_.size(); ++at) {
      const std::string& bare = lines_[at].bare;
      if (!opened) absl::StrAppend(&head, bare, " ");
      AddLine(at, &before, &values);
      for (const char letter : bare) {
        depth += (letter == '{') - (letter == '}');
        opened |= letter == '{';
      }
      if (opened ? depth == 0 : IsEmpty(at)) break;
    }
    static const std::regex pattern(R"((\w+)\()");
    std::smatch match;
    if (values.empty() || !std::regex_search(head, match, pattern)) {
      Problem(last, absl::StrCat("[", tag.kind, "] stands above no number"));
      return;
    }
    Add(last + 1, absl::StrCat(match[1].str(), "()"), values, tag);
  }

  void AddLine(size_t at, std::string* before, std::string* values) {
    std::string code(absl::StripAsciiWhitespace(lines_[at].code));
    const Strings numbers = NumbersIn(lines_[at].bare);
    const bool returns = absl::StartsWith(code, "return ");
    const bool counts =
        std::any_of(numbers.begin(), numbers.end(), [&](const auto& number) {
          return returns || (number != "0" && number != "1");
        });
    if (!counts || covered_[at]) return;
    covered_[at] = true;
    if (returns) code = code.substr(7);
    const bool ends = absl::EndsWith(code, ";");
    if (ends) code.pop_back();
    absl::StrAppend(values, values->empty() ? "" : *before, code);
    *before = ends ? "; " : " ";
  }

  void FindOthers() {
    for (size_t at = 0; at < lines_.size(); ++at) {
      if (covered_[at]) continue;
      for (const std::string& number : NumbersIn(lines_[at].bare)) {
        if (IsOfFormula(number)) continue;
        Problem(at, absl::StrCat(number,
                                 " has no class; make it a constexpr, "
                                 "or end the comment above its "
                                 "function in one of ",
                                 Allowed()));
      }
    }
  }

  const SourceText& source_;
  Constants& out_;
  std::vector<Line> lines_;
  std::vector<bool> covered_;
  std::set<size_t> used_;  // last lines of comments
  std::vector<Constant> rows_;
};

std::string UnitOfField(absl::string_view field) {
  if (absl::EndsWith(field, "_per_s")) return "bytes/s";
  if (absl::EndsWith(field, "_flops")) return "FLOP/s";
  if (absl::EndsWith(field, "_per_flop")) return "J/FLOP";
  if (absl::EndsWith(field, "_bytes")) return "bytes";
  if (absl::EndsWith(field, "_watts")) return "W";
  return absl::EndsWith(field, "_s") ? "s" : "";
}

}  // namespace

Constants ConstantsOf(const std::vector<SourceText>& sources) {
  Constants out;
  for (const SourceText& source : sources) Reader(source, &out).Read();
  return out;
}

Constants ConstantsOfDevices(const std::vector<SourceText>& files) {
  static const std::regex opens(R"(^(\w+)\s*\{\s*(?:#\s*(.*))?$)");
  static const std::regex says(R"(^\s*value:\s*(\S+)\s*$)");
  static const std::regex quotes(R"re("((?:[^"\\]|\\.)*)")re");
  Constants out;
  for (const SourceText& file : files) {
    std::string device = file.path.substr(file.path.rfind('/') + 1);
    device.resize(device.find('.'));
    const Strings lines = absl::StrSplit(file.text, '\n');
    Constant row;
    for (size_t at = 0; at < lines.size(); ++at) {
      std::smatch match;
      if (std::regex_match(lines[at], match, opens)) {
        const Tag tag = TagOf(match[2]);
        row = {.file = device,
               .line = static_cast<int>(at) + 1,
               .name = match[1],
               .unit = UnitOfField(match[1].str()),
               .kind = tag.kind};
        if (!tag.found || !IsKnown(tag.kind)) {
          out.problems.push_back(absl::StrCat(
              file.path, ":", at + 1, ": ", row.name,
              tag.found ? absl::StrCat(": unknown class [", tag.kind, "]")
                        : " has no class",
              "; behind its brace must stand one of # ", Allowed()));
        }
      } else if (std::regex_match(lines[at], match, says)) {
        row.value = match[1];
      } else if (lines[at] == "}") {
        out.rows.push_back(std::exchange(row, {}));
      } else if (!row.name.empty()) {
        for (std::sregex_iterator part(lines[at].begin(), lines[at].end(),
                                       quotes);
             part != std::sregex_iterator(); ++part) {
          row.source += (*part)[1];
        }
      }
    }
  }
  return out;
}

}  // namespace pipewright::testing
