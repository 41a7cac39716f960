// The samples of CONTRIBUTING.md compile as they stand there: whoever begins
// with one has not to look for what is wrong with it.
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/support/markdown.h"
#include "tests/support/paths.h"
#include "tests/support/run_binary.h"

namespace pipewright::contributing_test {
namespace {

using testing::BinaryResult;

BinaryResult Compile(const testing::TemporaryFolder& folder,
                     const std::string& code) {
  return testing::RunProgram(
      {"c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow",
       "-Werror", "-Wno-missing-field-initializers", "-I",
       testing::SourcePath(""), folder.Write("sample.cc", code)});
}

TEST_CASE("contributing: the samples of a schedule and a topology compile",
          "[docs]") {
  const testing::TemporaryFolder folder;
  if (testing::RunProgram({"c++", "--version"}).exit_code != 0) {
    WARN("skipped: no compiler is called c++");
    return;
  }
  int samples = 0;
  for (const testing::FencedBlock& block :
       testing::FencedBlocks(testing::ReadPage("CONTRIBUTING.md"))) {
    if (block.language != "cpp" ||
        !absl::StrContains(block.text(), "const Register")) {
      continue;
    }
    ++samples;
    const BinaryResult compiled = Compile(folder, block.text());
    INFO("CONTRIBUTING.md:" << block.line << "\n" << compiled.err);
    CHECK(compiled.exit_code == 0);
  }
  CHECK(samples == 2);
}

// Whoever begins reads all of it.
TEST_CASE("contributing: it is short", "[docs]") {
  const size_t bytes = testing::ReadPage("CONTRIBUTING.md").size();
  CHECK(bytes > 1000);
  CHECK(bytes <= 10000);
}

}  // namespace
}  // namespace pipewright::contributing_test
