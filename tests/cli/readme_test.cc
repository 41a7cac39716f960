// What README.md shows has to work.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "sim/base/file.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright {
namespace {

using testing::BinaryResult;
using testing::RunBinary;
using testing::TemporaryFolder;

std::string Readme() {
  const absl::StatusOr<std::string> text =
      ReadFile(testing::SourcePath("README.md"));
  REQUIRE(text.ok());
  return *text;
}

// The lines of the first block that starts with the fence and the line given.
std::vector<std::string> Block(const std::string& text,
                               const std::string& start) {
  const size_t begin = text.find(start);
  REQUIRE(begin != std::string::npos);
  const size_t first = text.find('\n', begin) + 1;
  return absl::StrSplit(text.substr(first, text.find("\n```", first) - first),
                        '\n');
}

TEST_CASE("readme: the configuration runs", "[cli]") {
  const TemporaryFolder folder;
  const std::string config = folder.Write(
      "run.yaml", absl::StrJoin(Block(Readme(), "```yaml\n"), "\n"));
  const BinaryResult result = RunBinary({"simulate", config, "--json"});
  INFO(result.err);
  REQUIRE(result.exit_code == 0);
  const auto report = nlohmann::json::parse(result.out);
  CHECK(report["schedule"] == "interleaved-1f1b");
  CHECK(report["dp"] == 2);
  CHECK(report["data_parallel"] == "fsdp");
}

TEST_CASE("readme: the commands of the tour run", "[cli]") {
  const TemporaryFolder folder;
  const std::string text =
      absl::StrReplaceAll(Readme(), {{"\\\n", " "}});  // joins long commands
  int commands = 0;
  for (const std::string& line : Block(text, "```\n# No file needed")) {
    if (!absl::StartsWith(line, "pipewright ")) continue;
    std::vector<std::string> words =
        absl::StrSplit(line, ' ', absl::SkipEmpty());
    words.erase(words.begin());
    // Files go to a folder of the test's own.
    for (std::string& word : words) {
      for (const char* ending : {".svg", ".json", ".yaml", ".perfetto-trace"}) {
        if (absl::EndsWith(word, ending)) word = folder.Path(word);
      }
    }
    const BinaryResult result = RunBinary(words);
    INFO(line << "\n" << result.err);
    CHECK(result.exit_code == 0);
    ++commands;
  }
  CHECK(commands == 11);
  CHECK(folder.Files().size() == 4);
}

TEST_CASE("readme: every registered schedule is named", "[cli]") {
  const std::string readme = Readme();
  const BinaryResult result = RunBinary({"list", "schedules", "--json"});
  REQUIRE(result.exit_code == 0);
  const auto rows = nlohmann::json::parse(result.out)["schedules"];
  REQUIRE_FALSE(rows.empty());
  for (const auto& row : rows) {
    const std::string name =
        absl::StrCat("`", row["name"].get<std::string>(), "`");
    INFO(name);
    CHECK(absl::StrContains(readme, name));
  }
}

}  // namespace
}  // namespace pipewright
