// Phrases that readers stumble over stay out of pages, header comments and
// messages. Comments begin with a noun or verb, sentences are short.
// docs/architecture.md, House style, has the rule.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/support/markdown.h"
#include "tests/support/paths.h"
#include "tests/support/prose.h"
#include "tests/support/run_here.h"

namespace pipewright::words_test {
namespace {

// Lower case, one blank between words and between the parts of one.
const std::vector<std::string>& StiffPhrases() {
  static const std::vector<std::string> phrases = {
      "how manieth",        "holds nobody",        "hold nobody",
      "nothing is made up", "its first bytes say",
  };
  return phrases;
}

// One line in lower case, without the marks of comments, the quotes between the
// parts of a string, hyphens and what a manual page puts in front of them.
std::string Flat(const std::string& text) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  for (std::string& line : lines) {
    const size_t first = line.find_first_not_of(" \t\"/#*");
    const size_t last = line.find_last_not_of(" \t\"");
    line = first == std::string::npos || last < first
               ? ""
               : line.substr(first, last - first + 1);
  }
  return absl::AsciiStrToLower(absl::StrReplaceAll(absl::StrJoin(lines, " "),
                                                   {{"\\-", " "}, {"-", " "}}));
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
                             "calibrate", "execute", "experiments", "python"}) {
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

TEST_CASE("words: what the program prints of itself is in plain English",
          "[docs]") {
  for (const std::vector<std::string>& words : {std::vector<std::string>{"man"},
                                                {"list", "fields"},
                                                {"list", "schedules"},
                                                {"list", "topologies"},
                                                {"simulate", "--help", "all"},
                                                {"execute", "--help", "all"},
                                                {"help", "strategy"},
                                                {"simulate", "--help"},
                                                {"execute", "--help"}}) {
    const testing::BinaryResult run = testing::RunHere(words);
    INFO(absl::StrJoin(words, " "));
    CHECK(run.out.size() > 1000);
    CHECK(PhrasesIn(run.out) == std::vector<std::string>());
  }
}

TEST_CASE("words: a phrase is found wherever its lines break", "[docs]") {
  CHECK(PhrasesIn("// the How-Manieth stage\n").size() == 1);
  CHECK(PhrasesIn("\"every how \"\n    \"manieth layer\"").size() == 1);
  CHECK(PhrasesIn("every how\\-manieth layer").size() == 1);
  CHECK(PhrasesIn("  // A transfer that\n  // holds\n  // nobody.\n").size() ==
        1);
  CHECK(PhrasesIn("\"buffered: holds \"\n      \"nobody\"").size() == 1);
  CHECK(PhrasesIn("| buffered | holds a page; nobody |").empty());
}

// It has the phrase itself.
constexpr char kOwnPath[] = "tests/words_test.cc";

// True whatever stands between the two words: a break of a line, marks, quotes.
bool SaysHowManieth(const std::string& text) {
  // Most texts are data, and large.
  if (!absl::StrContains(absl::AsciiStrToLower(text), "manieth")) return false;
  return absl::StrContains(Flat(text), "how manieth");
}

TEST_CASE("words: no text asks how manieth", "[docs]") {
  std::vector<std::string> found;
  int files = 0;
  for (const std::string& path : testing::AllFiles()) {
    const std::string text = ReadFile(testing::SourcePath(path)).value();
    if (path == kOwnPath || absl::StrContains(text, '\0')) continue;
    ++files;
    if (SaysHowManieth(text)) found.push_back(path);
  }
  INFO(absl::StrJoin(found, "\n"));
  CHECK(found.empty());
  CHECK(files > 500);

  CHECK(SaysHowManieth("# which, and the how\n# manieth it is\n"));
  CHECK(SaysHowManieth("\"How-manieth\""));
  CHECK_FALSE(SaysHowManieth("manieth, how"));
}

// Comments that begin with a genitive: its noun is somewhere else.
std::vector<std::string> Genitives(const std::string& path,
                                   const std::string& text) {
  std::vector<std::string> found;
  for (const testing::Passage& block : testing::CommentBlocks(path, text)) {
    if (!absl::StartsWith(block.text, "Of ")) continue;
    found.push_back(absl::StrCat(path, ":", block.line, ": ", block.text));
  }
  return found;
}

TEST_CASE("words: comments of the product begin with a noun or verb",
          "[docs]") {
  std::vector<std::string> found;
  size_t blocks = 0;
  for (const std::string& path : testing::AllFiles()) {
    if (absl::StartsWith(path, "tests/")) continue;
    const std::string text = ReadFile(testing::SourcePath(path)).value();
    blocks += testing::CommentBlocks(path, text).size();
    const std::vector<std::string> more = Genitives(path, text);
    found.insert(found.end(), more.begin(), more.end());
  }
  INFO(absl::StrJoin(found, "\n"));
  CHECK(found.empty());
  CHECK(blocks > 4000);
}

TEST_CASE("words: a comment that begins with a genitive is found", "[docs]") {
  using Found = std::vector<std::string>;
  CHECK(Genitives("a.cc", "int a;\n\n  // Of a layer,\n  // all.\nint b;\n") ==
        Found{"a.cc:3: Of a layer, all."});
  CHECK(Genitives("a.h", "int a;  // Of a layer\nint b;\n").size() == 1);
  CHECK(Genitives("a.h", "int a;  // behind it\n// Of a layer.\n").size() == 1);
  CHECK(Genitives("a.h", "/* Of a layer,\n * all. */\n") ==
        Found{"a.h:1: Of a layer, all. */"});
  CHECK(Genitives("a.sh", "#!/bin/sh\n# Of a layer.\n").size() == 1);
  CHECK(Genitives("CMakeLists.txt", "set(a) # Of a layer\n").size() == 1);
  CHECK(Genitives("a.js", "// Of a layer.\n").size() == 1);
  // Inside of a comment it is the end of a sentence, or the next one.
  CHECK(Genitives("a.cc", "// The part\n// Of a layer.\n").empty());
  CHECK(Genitives("a.cc", "int a;  // some\n        // Of them.\n").empty());
  CHECK(Genitives("a.cc", "// Office hours.\n").empty());
  CHECK(Genitives("a.csv", "# Of a layer.\n").empty());
}

constexpr int kMostWords = 40;

// "LINE: COUNT words: SENTENCE" of those with over kMostWords words.
std::vector<std::string> TooLong(
    const std::vector<testing::Passage>& passages) {
  std::vector<std::string> found;
  for (const testing::Passage& passage : passages) {
    for (const std::string& sentence : testing::SentencesOf(passage.text)) {
      const int words = testing::NumWords(sentence);
      if (words <= kMostWords) continue;
      found.push_back(
          absl::StrCat(passage.line, ": ", words, " words: ", sentence));
    }
  }
  return found;
}

// Without the choices and the default that the program writes behind a help.
std::string OwnHelp(const std::string& text) {
  return text.substr(
      0, std::min(text.find("; one of "), text.find(" (default: ")));
}

TEST_CASE("words: sentences of pages are short", "[docs]") {
  size_t passages = 0;
  for (const std::string& path : testing::AllPages()) {
    if (path == "CONTRIBUTING.md") continue;
    const std::vector<testing::Passage> found =
        testing::PassagesOfPage(testing::ReadPage(path));
    passages += found.size();
    const std::vector<std::string> sentences = TooLong(found);
    INFO(path << ":\n" << absl::StrJoin(sentences, "\n"));
    CHECK(sentences.empty());
  }
  CHECK(passages > 2000);
}

TEST_CASE("words: sentences of help are short", "[docs]") {
  std::vector<testing::Passage> passages =
      testing::PassagesOfManual(testing::RunHere({"man"}).out);
  CHECK(passages.size() > 200);
  for (const char* kind : {"fields", "schedules", "topologies"}) {
    const std::string rows = testing::RunHere({"list", kind}).out;
    for (const absl::string_view row : absl::StrSplit(rows, '\n')) {
      passages.push_back({.line = 0, .text = std::string(row)});
    }
  }
  CHECK(passages.size() > 600);
  for (testing::Passage& passage : passages) {
    passage.text = OwnHelp(passage.text);
  }
  const std::vector<std::string> sentences = TooLong(passages);
  INFO(absl::StrJoin(sentences, "\n"));
  CHECK(sentences.empty());
}

// "word word ...", so many.
std::string Words(int count) {
  return absl::StrJoin(std::vector<std::string>(count, "word"), " ");
}

int TooLongOnPage(const std::string& page) {
  return static_cast<int>(TooLong(testing::PassagesOfPage(page)).size());
}

TEST_CASE("words: a long sentence is found wherever it stands", "[docs]") {
  const std::string most = Words(kMostWords);
  const std::string half = Words(kMostWords / 2);
  CHECK(TooLongOnPage(most + ".\n") == 0);
  CHECK(TooLongOnPage(most + " more.\n") == 1);
  CHECK(TooLongOnPage(half + "\n" + half + "\nmore\n") == 1);
  CHECK(TooLongOnPage("# A title\n" + most + "\nmore\n") == 1);
  CHECK(TooLongOnPage("- " + half + "; " + half + "\n  more.\n") == 1);
  CHECK(TooLongOnPage("1. " + most + ": more\n") == 1);
  CHECK(TooLongOnPage("| a | " + most + " more | b |\n") == 1);
  CHECK(TooLongOnPage(most + " `some code`\n") == 1);
  CHECK(TooLongOnPage(most + " [more](a/b c)\n") == 1);
  // What ends a sentence.
  CHECK(TooLongOnPage(half + ". " + half + " more.\n") == 0);
  CHECK(TooLongOnPage(half + " (so?) " + half + " more\n") == 0);
  CHECK(TooLongOnPage(half + ":\n- " + half + "\n- " + half + "\n") == 0);
  CHECK(TooLongOnPage(half + "\n\n" + half + " more\n") == 0);
  CHECK(TooLongOnPage("| " + half + " | " + half + " more |\n") == 0);
  CHECK(TooLongOnPage("```\n" + most + " more\n```\n") == 0);
  // What is no word.
  CHECK(TooLongOnPage(most + " 12 + 3.5 %\n") == 0);
  CHECK(TooLong(testing::PassagesOfManual(".It a\n" + half + "\n" + half +
                                          " \\-\\-flag\n")) ==
        std::vector<std::string>());
  CHECK(TooLong(testing::PassagesOfManual(".It a\n" + half + "\n" + half +
                                          " more\n.El\n"))
            .size() == 1);
  CHECK(OwnHelp("so many; one of a, b (default: a)") == "so many");
  CHECK(OwnHelp("so many (default: 3)") == "so many");
  CHECK(OwnHelp("so many; one or two") == "so many; one or two");
}

}  // namespace
}  // namespace pipewright::words_test
