#include "tests/support/markdown.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <regex>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"

namespace pipewright::testing {
namespace {

using Strings = std::vector<std::string>;

// A block in a list is indented.
size_t IndentOf(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

bool IsFence(const std::string& line) {
  return line.compare(IndentOf(line), 3, "```") == 0;
}

// TEXT of "<!-- NAME: TEXT -->"; "" for another line.
std::string MarkOf(absl::string_view line, absl::string_view name) {
  const bool is_mark =
      absl::ConsumePrefix(&line, absl::StrCat("<!-- ", name, ": ")) &&
      absl::ConsumeSuffix(&line, " -->");
  return is_mark ? std::string(line) : "";
}

// Without what stands in fenced blocks.
std::string Prose(const std::string& page) {
  bool fenced = false;
  Strings kept;
  for (const std::string& line : Strings(absl::StrSplit(page, '\n'))) {
    if (IsFence(line)) {
      fenced = !fenced;
    } else if (!fenced) {
      kept.push_back(line);
    }
  }
  return absl::StrJoin(kept, "\n");
}

}  // namespace

std::string FencedBlock::text() const {
  return absl::StrJoin(lines, "\n") + "\n";
}

std::vector<FencedBlock> FencedBlocks(const std::string& page) {
  std::vector<FencedBlock> blocks;
  bool fenced = false;
  std::string not_run;
  std::string file;
  bool is_output = false;
  size_t indent = 0;
  int number = 0;
  for (const std::string& line : Strings(absl::StrSplit(page, '\n'))) {
    ++number;
    if (IsFence(line)) {
      fenced = !fenced;
      if (fenced) {
        indent = IndentOf(line);
        blocks.push_back({.line = number,
                          .language = line.substr(indent + 3),
                          .lines = {},
                          .not_run = not_run,
                          .is_output = is_output,
                          .file = file});
      }
      not_run.clear();
      file.clear();
      is_output = false;
    } else if (fenced) {
      blocks.back().lines.push_back(
          line.substr(std::min(indent, IndentOf(line))));
    } else if (!line.empty()) {
      not_run = MarkOf(line, "not run");
      file = MarkOf(line, "file");
      is_output = line == "<!-- output -->";
    }
  }
  return blocks;
}

std::vector<PageCommand> CommandsOf(const FencedBlock& block) {
  static const std::regex said(R"(exit code (\d))");
  std::vector<PageCommand> commands;
  PageCommand next;
  for (const std::string& line : block.lines) {
    std::smatch found;
    if (line.empty()) continue;
    if (line[0] == '#') {
      if (std::regex_search(line, found, said)) {
        next.exit_code = std::atoi(found[1].str().c_str());
      }
      continue;
    }
    if (line.back() == '\\') {
      next.text += line.substr(0, line.size() - 1);
      continue;
    }
    next.text += line;
    commands.push_back(next);
    next = {};
  }
  return commands;
}

std::vector<std::string> LinksOf(const std::string& page) {
  static const std::regex code("`[^`\n]*`");
  static const std::regex link(R"(\]\(([^)\s]+)\))");
  const std::string text = std::regex_replace(Prose(page), code, "code");
  std::vector<std::string> links;
  for (auto found = std::sregex_iterator(text.begin(), text.end(), link);
       found != std::sregex_iterator(); ++found) {
    links.push_back((*found)[1].str());
  }
  return links;
}

std::vector<std::string> AnchorsOf(const std::string& page) {
  std::vector<std::string> anchors;
  for (const std::string& line : Strings(absl::StrSplit(Prose(page), '\n'))) {
    const size_t level = line.find_first_not_of('#');
    if (level == 0 || level == std::string::npos || line[level] != ' ') {
      continue;
    }
    std::string anchor;
    for (const char letter : line.substr(level + 1)) {
      const auto byte = static_cast<unsigned char>(letter);
      if (letter == ' ') {
        anchor += '-';
      } else if (std::isalnum(byte) != 0 || letter == '-' || letter == '_') {
        anchor += static_cast<char>(std::tolower(byte));
      }
    }
    anchors.push_back(anchor);
  }
  return anchors;
}

std::vector<std::string> AllPages() {
  Strings pages = {"CONTRIBUTING.md", "README.md"};
  const std::filesystem::path root = SourcePath("");
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(root / "docs")) {
    if (entry.path().extension() != ".md") continue;
    pages.push_back(entry.path().lexically_relative(root).string());
  }
  std::sort(pages.begin(), pages.end());
  return pages;
}

std::string ReadPage(const std::string& path) {
  return ReadFile(SourcePath(path)).value();
}

}  // namespace pipewright::testing
