// Every numbered folder of experiments/: its configurations give what its
// expected.csv says, and its schedule files pass `check`.
#include <catch2/catch.hpp>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::experiments_test {
namespace {

namespace fs = std::filesystem;
using testing::BinaryResult;
using testing::Json;
using testing::RunBinary;

std::vector<fs::path> Folders() {
  std::vector<fs::path> folders;
  for (const auto& entry :
       fs::directory_iterator(testing::SourcePath("experiments"))) {
    const std::string name = entry.path().filename().string();
    if (absl::ascii_isdigit(name[0])) folders.push_back(entry.path());
  }
  return folders;
}

TEST_CASE("experiments: configurations give what is expected",
          "[experiments]") {
  REQUIRE_FALSE(Folders().empty());
  for (const fs::path& folder : Folders()) {
    INFO(folder);
    CHECK(fs::exists(folder / "README.md"));
    const auto expected = ReadFile((folder / "expected.csv").string());
    REQUIRE(expected.ok());
    std::map<std::string, Json> reports;
    int values = 0;
    for (const absl::string_view line :
         absl::StrSplit(*expected, '\n', absl::SkipEmpty())) {
      const std::vector<std::string> row = absl::StrSplit(line, ',');
      REQUIRE(row.size() == 3);
      if (row[0] == "config") continue;
      if (reports.count(row[0]) == 0) {
        const BinaryResult run =
            RunBinary({"simulate", (folder / row[0]).string(), "--json"});
        INFO(run.err);
        REQUIRE(run.exit_code == 0);
        reports[row[0]] = Json::parse(run.out);
      }
      double value = 0;
      REQUIRE(absl::SimpleAtod(row[2], &value));
      INFO(line);
      const std::string key = absl::StrCat("/", row[1]);
      // The file has nine digits.
      CHECK(reports[row[0]].at_pointer(key).get<double>() ==
            Approx(value).epsilon(1e-8).margin(1e-12));
      ++values;
    }
    CHECK(values > 0);
  }
}

TEST_CASE("experiments: schedule files pass check", "[experiments]") {
  for (const fs::path& folder : Folders()) {
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".pws") continue;
      for (const char* semantics : {"buffered", "nccl"}) {
        const BinaryResult run = RunBinary(
            {"check", entry.path().string(), "--semantics", semantics});
        INFO(run.err);
        CHECK(run.exit_code == 0);
      }
    }
  }
}

}  // namespace
}  // namespace pipewright::experiments_test
