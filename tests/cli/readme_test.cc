// What README.md and docs/ show has to work, and what they link has to be
// there.
//
// A fenced block without a language, or with "sh", holds commands that the test
// runs in the order of the page, all of a page in one folder. A block with
// "<!-- not run: REASON -->" right above it is left alone. A comment above a
// command may say "exit code N". Lines of a block with "<!-- output -->" above
// it are printed by commands above it, "..." being the rest of a long one. A
// block with "<!-- file: NAME -->" above it is a file of the folder.
#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "tests/support/json.h"
#include "tests/support/markdown.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::readme_test {
namespace {

using testing::AllPages;
using testing::BinaryResult;
using testing::FencedBlock;
using testing::FencedBlocks;
using testing::Json;
using testing::PageCommand;
using testing::ReadPage;
using testing::RunBinary;
using testing::TemporaryFolder;

// README.md and docs/ with docs/dev/.
std::vector<std::string> PagesWithCommands() {
  std::vector<std::string> pages = AllPages();
  pages.erase(std::find(pages.begin(), pages.end(), "CONTRIBUTING.md"));
  return pages;
}

constexpr char kDeveloperIndex[] = "docs/dev/README.md";

// What `pipewright` or a test of it writes.
constexpr const char* kGenerated[] = {
    "docs/config.md", "docs/dev/benchmarks.md", "docs/dev/constants.md",
    "docs/dev/validation.md"};

// Pages that whoever changes or checks the code reads. Comments of the code
// cite the architecture where it has always been.
bool IsForDevelopers(const std::string& page) {
  return absl::StartsWith(page, "docs/dev/") || page == "docs/architecture.md";
}

// Pages that users read, but for generated ones.
std::vector<std::string> UserPages() {
  std::vector<std::string> pages;
  for (const std::string& page : PagesWithCommands()) {
    if (!IsForDevelopers(page) &&
        std::find(std::begin(kGenerated), std::end(kGenerated), page) ==
            std::end(kGenerated)) {
      pages.push_back(page);
    }
  }
  return pages;
}

// As a shell runs it, in `folder`, "pipewright" being the program under test.
BinaryResult RunInShell(const TemporaryFolder& folder,
                        const std::string& command) {
  return testing::RunProgram(
      {"env", "-C", folder.Path(""), "PROGRAM=" + testing::BinaryPath(), "bash",
       "-c", absl::StrCat("pipewright() { \"$PROGRAM\" \"$@\"; }\n", command)});
}

// "..." at the end of a line stands for the rest of a long one.
bool IsPrinted(const std::set<std::string>& printed, const std::string& line) {
  absl::string_view begin = line;
  if (!absl::ConsumeSuffix(&begin, "...")) return printed.count(line) > 0;
  const auto found = printed.lower_bound(std::string(begin));
  return found != printed.end() && absl::StartsWith(*found, begin);
}

void RunCommandsOf(const std::string& page, int* commands) {
  const TemporaryFolder folder;
  std::set<std::string> printed;
  for (const FencedBlock& block : FencedBlocks(ReadPage(page))) {
    for (const std::string& line : block.lines) {
      INFO(page << ":" << block.line << ": " << line);
      CHECK((!block.is_output || IsPrinted(printed, line)));
    }
    if (!block.file.empty()) folder.Write(block.file, block.text());
    if (!block.is_commands() || !block.not_run.empty()) continue;
    for (const PageCommand& command : CommandsOf(block)) {
      INFO(page << ":" << block.line << ": " << command.text);
      // What else it is stands in a block with a mark.
      REQUIRE(absl::StartsWith(command.text, "pipewright "));
      const BinaryResult result = RunInShell(folder, command.text);
      INFO(result.err);
      CHECK(result.exit_code == command.exit_code);
      for (const std::string* text : {&result.out, &result.err}) {
        const std::vector<std::string> lines = absl::StrSplit(*text, '\n');
        printed.insert(lines.begin(), lines.end());
      }
      ++*commands;
    }
  }
}

TEST_CASE("readme: every command of README.md runs", "[cli][docs][long]") {
  int commands = 0;
  RunCommandsOf("README.md", &commands);
  CHECK(commands >= 6);
}

TEST_CASE("readme: every command of docs/ runs", "[cli][docs][long]") {
  int commands = 0;
  for (const std::string& page : PagesWithCommands()) {
    if (page != "README.md") RunCommandsOf(page, &commands);
  }
  CHECK(commands >= 30);
}

TEST_CASE("readme: a command that fails is noticed", "[cli][docs]") {
  const TemporaryFolder folder;
  CHECK(RunInShell(folder, "pipewright version").exit_code == 0);
  CHECK(RunInShell(folder, "pipewright simulate --pp 0").exit_code == 2);
  const std::string page =
      "```\n# This has exit code 2.\npipewright simulate \\\n    --pp 0\n"
      "pipewright version\n```\n<!-- not run: why -->\n\n```sh\nx\n```\n"
      "<!-- output -->\n```text\ny\n```\n";
  const std::vector<FencedBlock> blocks = FencedBlocks(page);
  REQUIRE(blocks.size() == 3);
  const std::vector<PageCommand> commands = CommandsOf(blocks[0]);
  REQUIRE(commands.size() == 2);
  CHECK(commands[0].text == "pipewright simulate     --pp 0");
  CHECK(commands[0].exit_code == 2);
  CHECK(commands[1].exit_code == 0);
  CHECK(blocks[1].not_run == "why");
  CHECK(blocks[2].not_run.empty());
  CHECK(blocks[2].is_output);
  CHECK_FALSE(blocks[2].is_commands());
  CHECK(IsPrinted({"a", "unknown b", "z"}, "unknown b"));
  CHECK(IsPrinted({"a", "unknown b", "z"}, "unknown..."));
  CHECK_FALSE(IsPrinted({"a", "unknown b", "z"}, "unknown"));
  CHECK_FALSE(IsPrinted({"a", "unknown b", "z"}, "known..."));
  CHECK_FALSE(IsPrinted({"a"}, "b..."));
  const auto file = FencedBlocks("<!-- file: a.json -->\n```json\n{}\n```\n");
  REQUIRE(file.size() == 1);
  CHECK(file[0].file == "a.json");
}

TEST_CASE("readme: configurations and schedule files run", "[cli][docs]") {
  int configurations = 0;
  int schedules = 0;
  for (const std::string& page : PagesWithCommands()) {
    for (const FencedBlock& block : FencedBlocks(ReadPage(page))) {
      if (!block.not_run.empty()) continue;
      const TemporaryFolder folder;
      std::vector<std::string> arguments;
      if (block.language == "yaml") {
        arguments = {"simulate", folder.Write("run.yaml", block.text()),
                     "--json"};
        ++configurations;
      } else if (!block.lines.empty() &&
                 block.lines[0] == "pipewright-schedule 1") {
        arguments = {"check", folder.Write("x.pws", block.text())};
        ++schedules;
      } else {
        continue;
      }
      const BinaryResult result = RunBinary(arguments);
      INFO(page << ":" << block.line << "\n" << result.err);
      CHECK(result.exit_code == 0);
    }
  }
  CHECK(configurations >= 1);
  CHECK(schedules >= 1);
}

TEST_CASE("readme: it and the pages for users are short", "[cli][docs]") {
  const size_t readme = ReadPage("README.md").size();
  CHECK(readme > 4'000);
  CHECK(readme <= 8'000);
  size_t bytes = 0;
  for (const std::string& page : UserPages()) {
    if (page != "README.md") bytes += ReadPage(page).size();
  }
  CHECK(bytes > 100'000);
  CHECK(bytes <= 150'000);
  // The one place that says for people which pages are generated.
  const std::string index = ReadPage(kDeveloperIndex);
  for (const char* page : kGenerated) {
    INFO(page);
    CHECK(absl::StrContains(index, absl::StrCat("| `", page, "` |")));
  }
}

// "" where `link` of `page` leads somewhere, or is no relative one.
std::string BrokenLink(const std::string& page, const std::string& link) {
  if (absl::StrContains(link, "://")) return "";
  const std::vector<std::string> parts = absl::StrSplit(link, '#');
  const std::filesystem::path target =
      parts[0].empty() ? std::filesystem::path(page)
                       : std::filesystem::path(page).parent_path() / parts[0];
  const std::string path = target.lexically_normal().string();
  if (!std::filesystem::exists(testing::SourcePath(path))) {
    return absl::StrCat(page, ": ", link, ": no such file");
  }
  if (parts.size() < 2) return "";
  const std::vector<std::string> anchors = testing::AnchorsOf(ReadPage(path));
  return std::find(anchors.begin(), anchors.end(), parts[1]) == anchors.end()
             ? absl::StrCat(page, ": ", link, ": no such heading")
             : "";
}

// The least and the most of simulated / published - 1 of a table, in percent.
std::pair<double, double> ErrorsOf(const std::string& name) {
  const BinaryResult result = RunBinary({"reproduce", name, "--json"});
  const auto table = Json::parse(result.out)["experiments"][0];
  std::pair<double, double> ends = {1e9, -1e9};
  for (const auto& row : table["rows"]) {
    if (!row.contains("published")) continue;
    const double error =
        100 *
        (row["simulated"].get<double>() / row["published"].get<double>() - 1);
    ends = {std::min(ends.first, error), std::max(ends.second, error)};
  }
  return ends;
}

TEST_CASE("readme: its errors are those of reproduce", "[cli][docs][long]") {
  for (const char* page : {"README.md", "docs/dev/times.md"}) {
    const std::string text = ReadPage(page);
    for (const char* name : {"megatron-table1", "korthikanti-table5"}) {
      const auto [least, most] = ErrorsOf(name);
      INFO(page << " " << name << " " << least << " " << most);
      CHECK(absl::StrContains(
          text, absl::StrFormat("%+.1f to %+.1f %% |", least, most)));
    }
    const BinaryResult llama =
        RunBinary({"reproduce", "llama3-table4", "--json"});
    const auto rows = Json::parse(llama.out)["experiments"][0]["rows"];
    REQUIRE(rows.size() == 2);
    CHECK(absl::StrContains(
        text, absl::StrFormat("MFU %.0f and %.0f %% against %.0f and %.0f %%",
                              rows[0]["simulated"].get<double>(),
                              rows[1]["simulated"].get<double>(),
                              rows[0]["published"].get<double>(),
                              rows[1]["published"].get<double>())));
  }
}

TEST_CASE("readme: every relative link leads somewhere", "[cli][docs]") {
  int links = 0;
  for (const std::string& page : AllPages()) {
    for (const std::string& link : testing::LinksOf(ReadPage(page))) {
      ++links;
      CHECK(BrokenLink(page, link) == "");
    }
  }
  CHECK(links > 50);
  CHECK_FALSE(BrokenLink("README.md", "docs/absent.md").empty());
  CHECK_FALSE(BrokenLink("docs/config.md", "README.md").empty());
  CHECK_FALSE(BrokenLink("README.md", "docs/architecture.md#absent").empty());
  CHECK(BrokenLink("docs/config.md", "architecture.md#words").empty());
}

TEST_CASE("readme: it links every page of docs/ and names every verb",
          "[cli][docs]") {
  const std::string readme = ReadPage("README.md");
  const std::vector<std::string> of_index =
      testing::LinksOf(ReadPage(kDeveloperIndex));
  int developers = 0;
  for (const std::string& page : PagesWithCommands()) {
    if (page == "README.md") continue;
    INFO(page);
    if (!IsForDevelopers(page) || page == kDeveloperIndex) {
      CHECK(absl::StrContains(readme, absl::StrCat("](", page)));
      continue;
    }
    // The developers' pages hang on an index that README links.
    ++developers;
    const std::string link =
        std::filesystem::path(page).lexically_relative("docs/dev").string();
    CHECK(std::count(of_index.begin(), of_index.end(), link) > 0);
  }
  CHECK(developers > 5);
  const BinaryResult help = RunBinary({"--help"});
  int verbs = 0;
  bool in_verbs = false;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(help.out, '\n'))) {
    if (in_verbs && absl::StartsWith(line, "  ") && line[2] != ' ') {
      const std::string verb = line.substr(2, line.find(' ', 2) - 2);
      INFO(verb);
      CHECK(absl::StrContains(readme, absl::StrCat("`", verb, "`")));
      ++verbs;
    }
    in_verbs = (in_verbs && !line.empty()) || line == "Verbs:";
  }
  CHECK(verbs >= 14);
}

TEST_CASE("readme: every registered schedule is in docs/schedules.md",
          "[cli][docs]") {
  const std::string page = ReadPage("docs/schedules.md");
  const BinaryResult result = RunBinary({"list", "schedules", "--json"});
  REQUIRE(result.exit_code == 0);
  const auto rows = Json::parse(result.out)["schedules"];
  REQUIRE_FALSE(rows.empty());
  for (const auto& row : rows) {
    const std::string name =
        absl::StrCat("| `", row["name"].get<std::string>(), "` |");
    INFO(name);
    CHECK(absl::StrContains(page, name));
  }
}

TEST_CASE("readme: docs/config.md is what the program prints", "[cli][docs]") {
  const BinaryResult result = RunBinary({"list", "fields", "--markdown"});
  REQUIRE(result.exit_code == 0);
  INFO("renew it: pipewright list fields --markdown > docs/config.md");
  const bool is_fresh = result.out == ReadPage("docs/config.md");
  CHECK(is_fresh);
}

}  // namespace
}  // namespace pipewright::readme_test
