// Phrases that readers stumble over stay out of pages, header comments and
// messages. docs/architecture.md, House style, has the rule.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/support/markdown.h"
#include "tests/support/paths.h"

namespace pipewright::words_test {
namespace {

// Lower case, one blank between words.
const std::vector<std::string>& StiffPhrases() {
  static const std::vector<std::string> phrases = {
      "how-manieth",        "holds nobody",        "hold nobody",
      "nothing is made up", "its first bytes say",
  };
  return phrases;
}

// One line in lower case, without the marks of comments and the quotes between
// the parts of a string.
std::string Flat(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    const size_t first = line.find_first_not_of(" \t\"/#*");
    const size_t last = line.find_last_not_of(" \t\"");
    line = first == std::string::npos || last < first
               ? ""
               : line.substr(first, last - first + 1);
  }
  return absl::AsciiStrToLower(absl::StrJoin(lines, " "));
}

std::vector<std::string> PhrasesIn(const std::string& text) {
  const std::string flat = Flat(text);
  std::vector<std::string> found;
  for (const std::string& phrase : StiffPhrases()) {
    if (absl::StrContains(flat, phrase)) found.push_back(phrase);
  }
  return found;
}

std::vector<std::string> Sources() {
  static const std::set<std::string> endings = {
      ".h", ".cc", ".cu", ".cuh", ".inc", ".proto", ".sh", ".textproto", ".md"};
  const std::filesystem::path root = testing::SourcePath("");
  std::vector<std::string> files = testing::AllPages();
  for (const char* folder : {"sim", "schedules", "topologies", "kernels",
                             "calibrate", "execute", "experiments"}) {
    for (const auto& entry :
         std::filesystem::recursive_directory_iterator(root / folder)) {
      if (endings.count(entry.path().extension().string()) == 0) continue;
      files.push_back(entry.path().lexically_relative(root).string());
    }
  }
  return files;
}

TEST_CASE("words: pages, comments and messages are in plain English",
          "[docs]") {
  int files = 0;
  for (const std::string& path : Sources()) {
    ++files;
    const std::vector<std::string> found =
        PhrasesIn(ReadFile(testing::SourcePath(path)).value());
    INFO(path << ": " << absl::StrJoin(found, ", "));
    CHECK(found.empty());
  }
  CHECK(files > 500);
}

TEST_CASE("words: a phrase is found wherever its lines break", "[docs]") {
  CHECK(PhrasesIn("// the How-Manieth stage\n").size() == 1);
  CHECK(PhrasesIn("  // A transfer that\n  // holds\n  // nobody.\n").size() ==
        1);
  CHECK(PhrasesIn("\"buffered: holds \"\n      \"nobody\"").size() == 1);
  CHECK(PhrasesIn("| buffered | holds a page; nobody |").empty());
}

}  // namespace
}  // namespace pipewright::words_test
