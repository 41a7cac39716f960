// `plot` of the rows of a sweep against the reports that `simulate` gives of
// the same runs.
#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/json.h"
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

}  // namespace
}  // namespace pipewright::plot_store_test
