// What `list topologies` and docs/topologies.md say of the registered shapes.
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/base/file.h"
#include "sim/topology/registry.h"
#include "tests/support/json.h"
#include "tests/support/paths.h"
#include "tests/support/run_here.h"

namespace pipewright::topologies_test {
namespace {

using testing::BinaryResult;
using testing::RunHere;

TEST_CASE("topologies: list has the keys, defaults and legal values", "[cli]") {
  const BinaryResult text = RunHere({"list", "topologies"});
  const BinaryResult json = RunHere({"list", "topologies", "--json"});
  REQUIRE(json.exit_code == 0);
  const auto rows = testing::Json::parse(json.out)["topologies"];
  REQUIRE(rows.size() == AllShapes().size());
  for (size_t index = 0; index < rows.size(); ++index) {
    const ShapeInfo& shape = *AllShapes()[index];
    CHECK(rows[index]["name"] == shape.name);
    CHECK(rows[index]["summary"] == shape.summary);
    CHECK(absl::StrContains(text.out, shape.summary));
    const auto& params = rows[index]["params"];
    REQUIRE(params.size() == shape.params.size());
    for (size_t each = 0; each < params.size(); ++each) {
      const ShapeParam& param = shape.params[each];
      CHECK(params[each]["key"] == param.key);
      CHECK(params[each]["default"] == param.fallback);
      CHECK(params[each]["legal"] == LegalValues(param));
      CHECK(params[each]["help"] == param.help);
      CHECK(absl::StrContains(
          text.out,
          absl::StrCat("--set system.params.", param.key, "=",
                       param.fallback.empty() ? "VALUE" : param.fallback, " (",
                       LegalValues(param), "): ", param.help)));
    }
  }
}

TEST_CASE("topologies: the page names every shape and its parameters",
          "[cli]") {
  const absl::StatusOr<std::string> page =
      ReadFile(testing::SourcePath("docs/topologies.md"));
  REQUIRE(page.ok());
  for (const ShapeInfo* shape : AllShapes()) {
    INFO(shape->name);
    const size_t begin = page->find(absl::StrCat("\n| `", shape->name, "` |"));
    REQUIRE(begin != std::string::npos);
    const std::string row =
        page->substr(begin, page->find('\n', begin + 1) - begin);
    for (const ShapeParam& param : shape->params) {
      CHECK(absl::StrContains(row, absl::StrCat("`", param.key, "`")));
    }
  }
}

}  // namespace
}  // namespace pipewright::topologies_test
