// Table 8 and figure 7 of "Zero Bubble Pipeline Parallelism", arXiv
// 2401.10241, as `reproduce` computes them. Table 8 stands here a second time
// on purpose: the product's own copy is under test as well.
#include <catch2/catch.hpp>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::zero_bubble_planners_test {
namespace {

using testing::Json;

Json Reproduced(const std::string& name, const std::string& engine) {
  const testing::BinaryResult run =
      testing::RunBinary({"reproduce", name, "--engine", engine, "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  return Json::parse(run.out);
}

TEST_CASE("papers: zero-bubble table 8", "[papers]") {
  struct Row {
    const char* setting;
    double one_f_one_b, interleaved, zb_h1, zb_h2;
    double zb_v;  // 0: not compared
  };
  constexpr Row kRows[] = {
      {"6.2B, pp 16, microbatches 48", .2668, .1499, .1536, .0823, .0697},
      {"6.2B, pp 16, microbatches 64", .2206, .1169, .1198, .0630, .0533},
      {"6.2B, pp 16, microbatches 128", .1390, .0621, .0637, .0325, .0274},
      {"28.3B, pp 32, microbatches 96", .2676, .1509, .1429, .0629, 0},
      {"28.3B, pp 32, microbatches 128", .2204, .1177, .1111, .0478, 0},
      {"28.3B, pp 32, microbatches 256", .1362, .0626, .0593, .0251, 0}};
  for (const char* engine : {"fast", "simgrid"}) {
    const Json object = Reproduced("zero-bubble-table8", engine);
    CHECK(object["match"] == true);
    CHECK(object["published"] == 27);
    std::map<std::string, Json> found;
    for (const Json& row : object["experiments"][0]["rows"]) {
      found[absl::StrCat(row["setting"].get<std::string>(), ": ",
                         row["schedule"].get<std::string>())] = row;
    }
    CHECK(found.size() == 33);
    for (const Row& row : kRows) {
      for (const auto& [schedule, published] :
           std::map<std::string, double>{{"1f1b", row.one_f_one_b},
                                         {"interleaved-1f1b", row.interleaved},
                                         {"zb-h1", row.zb_h1},
                                         {"zb-h2", row.zb_h2},
                                         {"zb-v", row.zb_v}}) {
        const std::string name = absl::StrCat(row.setting, ": ", schedule);
        INFO(engine << " " << name);
        REQUIRE(found.count(name) == (published > 0 ? 1 : 0));
        if (published == 0) continue;
        CHECK(found[name]["published"].get<double>() == published);
        CHECK(found[name]["rounded"].get<double>() == published);
        CHECK(found[name]["simulated"].get<double>() ==
              Approx(published).margin(5e-5));
      }
    }
  }
}

TEST_CASE("papers: zero-bubble figure 7", "[papers]") {
  const Json object = Reproduced("zero-bubble-figure7", "fast");
  CHECK(object["match"] == true);
  const Json& rows = object["experiments"][0]["rows"];
  REQUIRE(rows.size() == 12 * 17);
  int better = 0;
  for (size_t index = 0; index < rows.size(); ++index) {
    const double bubble = rows[index]["simulated"].get<double>();
    better += bubble < rows[index]["reference"].get<double>() - 1e-6;
    // More memory never costs time: lower limits are tried too.
    if (index % 17 == 0) continue;
    INFO(rows[index]["setting"] << " " << rows[index]["schedule"]);
    CHECK(bubble <= rows[index - 1]["simulated"].get<double>() + 1e-9);
  }
  CHECK(better == 3);
  // With limits of 1 and 2 the figure is ZB-1p and ZB-2p of table 5.
  constexpr double kTable5[][2] = {
      {.1585, .0433}, {.1242, .0039}, {.0674, .0026}, {.1323, .0029},
      {.1045, .0022}, {.0554, .0010}, {.1397, .0066}, {.1088, .0054},
      {.0576, .0028}, {.1421, .0038}, {.1106, .0029}, {.0594, .0018}};
  for (size_t setting = 0; setting < 12; ++setting) {
    for (const size_t limit : {1, 2}) {
      const Json& row = rows[17 * setting + 8 * (limit - 1)];
      INFO(row["setting"] << " " << row["schedule"]);
      CHECK(row["reference"].get<double>() ==
            Approx(kTable5[setting][limit - 1]).margin(5e-5));
    }
  }
}

}  // namespace
}  // namespace pipewright::zero_bubble_planners_test
