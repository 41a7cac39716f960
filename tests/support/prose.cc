#include "tests/support/prose.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "tests/support/paths.h"

namespace pipewright::testing {
namespace {

constexpr size_t kNowhere = absl::string_view::npos;

enum class Marks { kNone, kSlashes, kHash };

Marks MarksOf(const std::string& path) {
  static const std::set<std::string> slashes = {".cc",  ".cu", ".cuh",  ".h",
                                                ".inc", ".js", ".proto"};
  static const std::set<std::string> hash = {".cmake", ".py", ".sh",
                                             ".textproto", ".yaml"};
  const std::string ending = std::filesystem::path(path).extension().string();
  if (slashes.count(ending) > 0) return Marks::kSlashes;
  const bool is_cmake = absl::EndsWith(path, "CMakeLists.txt");
  return hash.count(ending) > 0 || is_cmake ? Marks::kHash : Marks::kNone;
}

// Where the comment of a line begins; kNowhere without one.
size_t CommentAt(absl::string_view line, Marks marks, bool inside) {
  const size_t first = line.find_first_not_of(' ');
  if (first == kNowhere) return kNowhere;
  const absl::string_view rest = line.substr(first);
  if (marks == Marks::kHash) {
    // The first line of a script names its interpreter.
    if (absl::StartsWith(rest, "#!")) return kNowhere;
    if (rest[0] == '#') return first;
    const size_t behind = line.find(" # ");
    return behind == kNowhere ? kNowhere : behind + 1;
  }
  if (absl::StartsWith(rest, "//") || absl::StartsWith(rest, "/*")) {
    return first;
  }
  // Inside of /* */.
  if (inside && (rest == "*" || absl::StartsWith(rest, "* "))) return first;
  for (const char* mark : {"  // ", " /* "}) {
    const size_t behind = line.find(mark);
    if (behind != kNowhere) return line.find('/', behind);
  }
  return kNowhere;
}

void Append(absl::string_view words, Passage* passage) {
  words = absl::StripAsciiWhitespace(words);
  if (words.empty()) return;
  absl::StrAppend(&passage->text, passage->text.empty() ? "" : " ", words);
}

// Length of what makes `line` an item of a list: "- ", "1. "; 0: it is none.
size_t ItemMark(absl::string_view line) {
  if (absl::StartsWith(line, "- ") || absl::StartsWith(line, "* ")) return 2;
  const size_t digits =
      std::min(line.find_first_not_of("0123456789"), line.size());
  return digits > 0 && absl::StartsWith(line.substr(digits), ". ") ? digits + 2
                                                                   : 0;
}

void AddCells(absl::string_view row, int line, std::vector<Passage>* passages) {
  const std::string cells = absl::StrReplaceAll(row, {{"\\|", "/"}});
  for (const absl::string_view cell : absl::StrSplit(cells, '|')) {
    passages->push_back({.line = line, .text = std::string(cell)});
  }
}

// Code as one word, links without their targets.
std::string Plain(const std::string& text) {
  std::string plain;
  bool is_code = false;
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '`') {
      is_code = !is_code;
      if (is_code) plain += "code";
    } else if (!is_code) {
      plain += text[at];
      if (text.compare(at, 2, "](") == 0) {
        at = std::min(text.find(')', at), text.size());
      }
    }
  }
  return plain;
}

}  // namespace

std::vector<std::string> AllFiles() {
  namespace fs = std::filesystem;
  std::vector<std::string> files;
  const fs::path root = SourcePath("");
  for (const auto& entry : fs::directory_iterator(root)) {
    const std::string name = entry.path().filename().string();
    // In a worktree of Git .git is a file with the path of the repository.
    if (entry.is_regular_file() && name != ".git") files.push_back(name);
  }
  for (const char* folder :
       {".ci", "calibrate", "cmake", "docs", "execute", "experiments",
        "devices", "kernels", "schedules", "sim", "tests", "topologies"}) {
    fs::recursive_directory_iterator at(root / folder);
    for (; at != fs::recursive_directory_iterator(); ++at) {
      const std::string name = at->path().filename().string();
      if (name == "node_modules" || name == "__pycache__") {
        at.disable_recursion_pending();
      } else if (at->is_regular_file()) {
        files.push_back(at->path().lexically_relative(root).string());
      }
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<Passage> CommentBlocks(const std::string& path,
                                   const std::string& text) {
  std::vector<Passage> blocks;
  const Marks marks = MarksOf(path);
  if (marks == Marks::kNone) return blocks;
  bool inside = false;
  size_t column = 0;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    ++number;
    const size_t at = CommentAt(line, marks, inside);
    const bool was_inside = inside;
    inside = at != kNowhere;
    if (!inside) continue;
    const bool is_alone = at == line.find_first_not_of(' ');
    const bool goes_on =
        was_inside && is_alone && (at == column || line[at] == '*');
    if (!goes_on) {
      blocks.push_back({.line = number, .text = ""});
      column = at;
    }
    const size_t words = line.find_first_not_of("/*#!< ", at);
    if (words != kNowhere) Append(line.substr(words), &blocks.back());
  }
  return blocks;
}

std::vector<Passage> PassagesOfPage(const std::string& page) {
  std::vector<Passage> passages;
  bool is_fenced = false;
  bool is_open = false;
  int number = 0;
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    ++number;
    line = absl::StripAsciiWhitespace(line);
    const bool is_fence = absl::StartsWith(line, "```");
    if (is_fence) is_fenced = !is_fenced;
    if (is_fence || is_fenced || line.empty() ||
        absl::StartsWith(line, "<!--")) {
      is_open = false;
      continue;
    }
    if (line[0] == '|') {
      AddCells(line, number, &passages);
      is_open = false;
      continue;
    }
    const size_t mark = ItemMark(line);
    if (mark > 0 || line[0] == '#' || !is_open) {
      passages.push_back({.line = number, .text = ""});
    }
    Append(line.substr(mark), &passages.back());
    is_open = line[0] != '#';
  }
  for (Passage& passage : passages) passage.text = Plain(passage.text);
  return passages;
}

std::vector<Passage> PassagesOfManual(const std::string& manual) {
  std::vector<Passage> passages;
  bool is_open = false;
  int number = 0;
  for (const absl::string_view line : absl::StrSplit(manual, '\n')) {
    ++number;
    if (line.empty() || line[0] == '.') {
      is_open = false;
      continue;
    }
    if (!is_open) passages.push_back({.line = number, .text = ""});
    is_open = true;
    Append(absl::StrReplaceAll(line, {{"\\-", "-"}, {"\\&", ""}}),
           &passages.back());
  }
  return passages;
}

std::vector<std::string> SentencesOf(const std::string& passage) {
  std::vector<std::string> sentences(1);
  for (size_t at = 0; at < passage.size(); ++at) {
    sentences.back() += passage[at];
    if (absl::string_view(".!?").find(passage[at]) == kNowhere) continue;
    const size_t next = passage.find_first_not_of("\"')*]", at + 1);
    if (next == std::string::npos || passage[next] == ' ') {
      sentences.emplace_back();
    }
  }
  return sentences;
}

int NumWords(const std::string& sentence) {
  int count = 0;
  for (const absl::string_view token :
       absl::StrSplit(sentence, ' ', absl::SkipEmpty())) {
    const bool is_flag = token.size() > 1 && token[0] == '-' &&
                         (token[1] == '-' || absl::ascii_isalpha(token[1]));
    const bool has_letter =
        std::any_of(token.begin(), token.end(), [](char letter) {
          return absl::ascii_isalpha(static_cast<unsigned char>(letter));
        });
    count += has_letter && !is_flag ? 1 : 0;
  }
  return count;
}

}  // namespace pipewright::testing
