// `plot` of the rows of a sweep against the reports that `simulate` gives of
// the same runs.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <string>
#include <vector>

#include "sim/schedule/registry.h"
#include "tests/support/json.h"
#include "tests/support/page_block.h"
#include "tests/support/run_binary.h"
#include "tests/support/run_here.h"

namespace pipewright::plot_store_test {
namespace {

using testing::RunHere;

const std::vector<std::string> kRun = {
    "--schedule",       "1f1b", "--microbatches",    "8",   "--forward", "1ms",
    "--backward-input", "2ms",  "--backward-weight", "1ms", "--p2p",     "0s",
    "--engine",         "fast"};

std::vector<std::string> With(std::vector<std::string> words,
                              const std::vector<std::string>& more) {
  words.insert(words.end(), kRun.begin(), kRun.end());
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

std::string TextOfFile(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

TEST_CASE("cli: a figure of a sweep has the numbers of its runs", "[cli]") {
  const testing::TemporaryFolder folder;
  const std::string store = folder.Path("runs.sqlite");
  REQUIRE(
      RunHere(With({"sweep"}, {"--sweep", "strategy.pp=2,4,8", "-o", store}))
          .exit_code == 0);
  const std::string csv = folder.Path("points.csv");
  const auto plotted =
      RunHere({"plot", store, "--x", "iteration_s", "--y",
               "bubble_fraction.per_rank", "--series", "strategy.pp", "--csv",
               csv, "-o", folder.Path("figure.svg")});
  INFO(plotted.err);
  REQUIRE(plotted.exit_code == 0);
  const std::string points = TextOfFile(csv);
  INFO(points);
  for (const char* const pp : {"2", "4", "8"}) {
    const auto run = RunHere(With({"simulate"}, {"--pp", pp, "--json"}));
    REQUIRE(run.exit_code == 0);
    const auto report = testing::Json::parse(run.out);
    bool found = false;
    std::istringstream lines(points);
    for (std::string line; std::getline(lines, line);) {
      if (line.find(std::string("strategy.pp ") + pp + ",") ==
          std::string::npos) {
        continue;
      }
      std::istringstream cells(line);
      for (std::string cell; std::getline(cells, cell, ',');) {
        found |= !cell.empty() && std::strtod(cell.c_str(), nullptr) ==
                                      report.at("iteration_s").get<double>();
      }
    }
    INFO("pp " << pp);
    CHECK(found);
  }
  const auto nobody = RunHere({"plot", store, "--x", "strategy.tp", "--y",
                               "iteration_s", "-o", folder.Path("none.svg")});
  CHECK(nobody.exit_code == 2);
  CHECK(nobody.err.find("strategy.tp") != std::string::npos);
}

// Each of the first commands of a page gives the step of its point.
void CheckCommands(const std::string& html, size_t most) {
  const testing::PageBlock page(TextOfFile(html));
  const testing::Json points = page.json()["points"];
  testing::Json column;
  for (const auto& each : points["columns"]) {
    if (each["name"] == "iteration_s") column = each;
  }
  const auto times = page.Column<double>(column["values"]);
  REQUIRE(!times.empty());
  for (size_t row = 0; row < std::min(most, times.size()); ++row) {
    std::istringstream command(
        points["command"]["common"].get<std::string>() +
        points["command"]["own"][row].get<std::string>());
    INFO(command.str());
    std::vector<std::string> words;
    for (std::string word; command >> std::quoted(word, '\'');) {
      words.push_back(word);
    }
    REQUIRE(words[0] == "pipewright");
    words.erase(words.begin());
    words.push_back("--json");
    const auto run = RunHere(words);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CHECK(testing::Json::parse(run.out)["iteration_s"] == times[row]);
  }
}

TEST_CASE("cli: the page of a sweep has commands that give its numbers",
          "[cli]") {
  const testing::TemporaryFolder folder;
  const std::string html = folder.Path("page.html");
  const auto swept = RunHere(
      With({"sweep"}, {"--sweep", "strategy.pp=2,4", "--sweep",
                       "schedule=1f1b,zb-h1", "-o", folder.Path("runs.sqlite"),
                       "--html", html, "--figure", folder.Path("f.svg")}));
  INFO(swept.err);
  REQUIRE(swept.exit_code == 0);
  CheckCommands(html, 4);
  const testing::PageBlock page(TextOfFile(html));
  CHECK(page.json()["points"]["count"] == 4);
  CHECK(page.json()["points"]["series"]["title"] == "Schedule");
  const std::string svg = TextOfFile(folder.Path("f.svg"));
  CHECK(svg.find(">Bubble fraction per rank, %<") != std::string::npos);
}

TEST_CASE("cli: commands of pages take what people give", "[cli]") {
  const testing::TemporaryFolder folder;
  const std::string html = folder.Path("page");
  const std::string rows = folder.Path("runs.sqlite");
  const auto check = [&](std::vector<std::string> words, size_t most) {
    words.insert(words.end(), {"--html", html});
    const auto run = RunHere(words);
    INFO(run.err);
    REQUIRE(run.exit_code == 0);
    CheckCommands(html, most);
  };
  check({"plan", "gpt2-xl", "--system", "dgx-h100", "--nodes", "1",
         "--global-batch", "16", "--max-candidates", "20", "--no-confirm"},
        2);
  check(
      {"sweep", "gpt2-xl", "--system", "dgx-h100", "--microbatches", "4",
       "--analytic", "--sweep", "schedule=1f1b,zb-h1", "--pp", "2", "-o", rows},
      2);
  // A whole backward; a time as an axis.
  const std::string times = folder.Path("times.sqlite");
  check({"sweep", "--forward", "1ms", "--backward", "2ms", "--pp", "2",
         "--microbatches", "4", "--sweep", "schedule=1f1b,gpipe", "-o", times},
        2);
  check({"sweep", "--backward-input", "2ms", "--backward-weight", "1ms", "--pp",
         "2", "--microbatches", "4", "--schedule", "1f1b", "--sweep",
         "forward=1ms,2ms", "-o", folder.Path("axis.sqlite")},
        2);
}

TEST_CASE("cli: a sweep says what it cannot draw and loses no table", "[cli]") {
  const testing::TemporaryFolder folder;
  const auto nothing = RunHere(
      {"sweep", "llama3-8b", "--system", "dgx-h100", "--pp", "1", "--tp", "1",
       "--microbatches", "8", "--sweep", "microbatch-size=4,8", "-o",
       folder.Path("big.sqlite"), "--figure", folder.Path("f.svg"), "--csv",
       folder.Path("big.csv")});
  CHECK(nothing.exit_code == 2);
  CHECK(nothing.err.find("--figure: nothing to draw") != std::string::npos);
  CHECK(!TextOfFile(folder.Path("big.csv")).empty());
  // Nothing that is no time is called seconds.
  const std::string units = folder.Path("units.sqlite");
  const std::string html = folder.Path("units.html");
  const auto ran =
      RunHere({"sweep", "--pp", "4", "--schedule", "1f1b", "-o", units,
               "--html", html, "--sweep", "microbatches=4,8"});
  REQUIRE(ran.exit_code == 0);
  CHECK(TextOfFile(html).find("Fastest: Iteration time 21 units") !=
        std::string::npos);
}

TEST_CASE("cli: schedule=all is every schedule; a figure has an ending",
          "[cli]") {
  const testing::TemporaryFolder folder;
  const auto count = RunHere({"sweep", "--microbatches", "8", "--pp", "4",
                              "--sweep", "schedule=all", "--dry-run", "--json",
                              "-o", folder.Path("runs.sqlite")});
  REQUIRE(count.exit_code == 0);
  CHECK(testing::Json::parse(count.out)["points"] == AllSchedules().size());
  const auto refused = RunHere(
      With({"sweep"}, {"--sweep", "schedule=all", "-o",
                       folder.Path("runs.sqlite"), "--figure", "f.doc"}));
  CHECK(refused.exit_code == 2);
  CHECK(refused.err.find("--figure") != std::string::npos);
  CHECK(refused.err.find(".pdf") != std::string::npos);
}

}  // namespace
}  // namespace pipewright::plot_store_test
