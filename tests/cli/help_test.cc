// Help in layers: a page for each verb that fits a screen, and examples that
// run.
#include "sim/cli/help.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/cli/option_table.h"
#include "sim/cli/verbs.h"
#include "sim/config/flags.h"
#include "tests/support/execute_job.h"
#include "tests/support/run_binary.h"
#include "tests/support/run_here.h"

namespace pipewright::help_test {
namespace {

using testing::BinaryResult;
using testing::RunHere;
using testing::TemporaryFolder;
using testing::VerbTable;
using testing::WordsOf;
using Words = std::vector<std::string>;

// Columns of UTF-8.
size_t Columns(const std::string& line) {
  return std::count_if(line.begin(), line.end(), [](char letter) {
    return (static_cast<unsigned char>(letter) & 0xc0) != 0x80;
  });
}

TEST_CASE("help: every verb's page fits a screen and names its own options",
          "[cli]") {
  int verbs = 0;
  for (const VerbRow& verb : VerbTable()) {
    Words words = WordsOf(verb.path);
    words.push_back("--help");
    const BinaryResult page = RunHere(words);
    INFO(verb.path << "\n" << page.out);
    CHECK(page.exit_code == 0);
    CHECK(page.err.empty());
    const Words lines = absl::StrSplit(page.out, '\n');
    CHECK(lines.size() - 1 <= kMostHelpLines);
    for (const std::string& line : lines) {
      INFO(line);
      CHECK(Columns(line) <= kMostHelpColumns);
    }
    for (const OptionRow& option : verb.options) {
      if (option.group == kConfigGroup || option.group.empty()) continue;
      const std::string& name =
          option.names.empty() ? option.place : option.names.back();
      INFO(name);
      CHECK(absl::StrContains(page.out, name));
    }
    // The same by the verb `help`, and whatever stands before --help.
    Words asked = {"help"};
    for (const std::string& word : WordsOf(verb.path)) asked.push_back(word);
    CHECK(RunHere(asked).out == page.out);
    if (!verb.path.empty()) {
      CHECK(absl::StrContains(page.out, "Usage: pipewright " + verb.path));
      CHECK(absl::StrContains(page.out,
                              "pipewright " + verb.path + " --help all"));
      ++verbs;
    }
    CHECK((HelpExamples(verb.path).empty() ||
           absl::StrContains(page.out, "Examples:")));
  }
  CHECK(verbs > 20);
  CHECK(RunHere({"simulate", "--pp", "0", "-h"}).out ==
        RunHere({"help", "simulate"}).out);
}

TEST_CASE("help: all has every option", "[cli]") {
  for (const VerbRow& verb : VerbTable()) {
    if (verb.path.empty()) continue;
    Words words = WordsOf(verb.path);
    words.insert(words.end(), {"--help", "all"});
    const BinaryResult page = RunHere(words);
    INFO(verb.path);
    CHECK(page.exit_code == 0);
    for (const OptionRow& option : verb.options) {
      for (const std::string& name : option.names) {
        INFO(name);
        CHECK((option.group.empty() || absl::StrContains(page.out, name)));
      }
    }
  }
}

TEST_CASE("help: topics have every flag of the configuration", "[cli]") {
  std::string all;
  for (const std::string& topic : HelpTopics()) {
    const BinaryResult page = RunHere({"help", topic});
    INFO(topic);
    CHECK(page.exit_code == 0);
    for (const std::string& line : Words(absl::StrSplit(page.out, '\n'))) {
      INFO(line);
      CHECK(Columns(line) <= kMostHelpColumns);
    }
    all += page.out;
  }
  for (const ConfigFlag& flag : ConfigFlags()) {
    // engine, network and iterations have no section.
    if (!absl::StrContains(flag.path, '.')) continue;
    INFO(flag.flag);
    CHECK(absl::StrContains(all, absl::StrCat("\n  ", flag.flag, " ")));
  }
  CHECK(absl::StrContains(RunHere({"help", "defaults"}).out, "1f1b"));
  // Of the program, not of the verb that asks.
  CHECK(absl::StrContains(RunHere({"help", "all"}).out, "reproduce"));
  CHECK(absl::StrContains(RunHere({"help", "exit-codes"}).out, "deadlocks"));
}

TEST_CASE("help: what is no topic is refused with the nearest", "[cli]") {
  const BinaryResult run = RunHere({"help", "simulat"});
  CHECK(run.exit_code == 2);
  CHECK(absl::StrContains(run.err, "did you mean 'simulate'?"));
  CHECK(RunHere({"help", "simulate", "more"}).exit_code == 2);
}

TEST_CASE("help: its examples run", "[cli][long]") {
  const std::filesystem::path before = std::filesystem::current_path();
  int run = 0;
  int shown = 0;
  for (const VerbRow& verb : VerbTable()) {
    const TemporaryFolder folder;
    std::filesystem::current_path(folder.Path(""));
    for (const HelpExample& example : HelpExamples(verb.path)) {
      ++shown;
      if (!example.runs) continue;
      const BinaryResult result = RunHere(WordsOf(example.words));
      INFO(verb.path << ": pipewright " << example.words << "\n" << result.err);
      CHECK(result.exit_code == 0);
      ++run;
    }
    std::filesystem::current_path(before);
  }
  CHECK(shown > 80);
  CHECK(run > 50);
}

}  // namespace
}  // namespace pipewright::help_test
