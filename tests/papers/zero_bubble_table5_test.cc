// "Zero Bubble Pipeline Parallelism", ICLR 2024, arXiv 2401.10241: table 6 in,
// table 5 out. The numbers stand here a second time on purpose: the product's
// own copy is under test as well.
#include <algorithm>
#include <catch2/catch.hpp>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/reproduce/paper.h"
#include "sim/config/prepare.h"
#include "sim/engine/engine.h"
#include "sim/program/program.h"
#include "tests/support/json.h"
#include "tests/support/run_binary.h"

namespace pipewright::zero_bubble_table5_test {
namespace {

using testing::Json;

struct Row {
  const char* model;
  int pp;
  int microbatches;
  int vpp;  // for 1F1B-I; found, not published
  double forward_ms, backward_input_ms, backward_weight_ms, p2p_ms;
  // Table 5, and our span of 1F1B-I without the p * T_comm taken off.
  double one_f_one_b, interleaved, zb_h1, zb_h2, interleaved_plain;
  double zb_1p, zb_2p;
};

constexpr Row kRows[] = {
    {"1.5B", 8, 24, 3, 18.522, 18.086, 9.337, 0.601, 0.2431, 0.1055, 0.1585,
     0.1083, 0.1090, 0.1585, 0.0433},
    {"1.5B", 8, 32, 3, 18.513, 18.086, 9.331, 0.626, 0.1985, 0.0818, 0.1242,
     0.0837, 0.0847, 0.1242, 0.0039},
    {"1.5B", 8, 64, 3, 18.546, 18.097, 9.321, 0.762, 0.1240, 0.0443, 0.0674,
     0.0444, 0.0461, 0.0674, 0.0026},
    {"6.2B", 8, 24, 4, 29.718, 29.444, 19.927, 0.527, 0.2347, 0.0808, 0.1323,
     0.0698, 0.0827, 0.1323, 0.0029},
    {"6.2B", 8, 32, 4, 29.802, 29.428, 19.530, 0.577, 0.1898, 0.0628, 0.1045,
     0.0559, 0.0644, 0.1045, 0.0022},
    {"6.2B", 8, 64, 4, 29.935, 29.621, 19.388, 0.535, 0.1091, 0.0320, 0.0554,
     0.0294, 0.0328, 0.0554, 0.0010},
    {"14.6B", 16, 48, 3, 11.347, 11.248, 8.132, 0.377, 0.2552, 0.1104, 0.1397,
     0.0672, 0.1136, 0.1397, 0.0066},
    {"14.6B", 16, 64, 3, 11.307, 11.254, 8.101, 0.379, 0.2082, 0.0852, 0.1088,
     0.0516, 0.0878, 0.1088, 0.0054},
    {"14.6B", 16, 128, 3, 11.325, 11.308, 8.109, 0.378, 0.1251, 0.0445, 0.0576,
     0.0266, 0.0459, 0.0576, 0.0028},
    {"28.3B", 32, 96, 2, 10.419, 10.207, 7.715, 0.408, 0.2646, 0.1493, 0.1421,
     0.0641, 0.1528, 0.1421, 0.0038},
    {"28.3B", 32, 128, 2, 10.408, 10.204, 7.703, 0.408, 0.2168, 0.1164, 0.1106,
     0.0490, 0.1192, 0.1106, 0.0029},
    {"28.3B", 32, 256, 2, 10.402, 10.248, 7.698, 0.460, 0.1352, 0.0624, 0.0594,
     0.0257, 0.0641, 0.0594, 0.0018},
};

// Cost: the longest span of a rank, own first start to own last end.
double CostMs(const Row& row, const char* schedule, int vpp,
              const char* engine_name) {
  RunConfig config;
  config.schedule.name = schedule;
  config.engine = engine_name;
  config.iterations = 1;
  config.strategy.pp = row.pp;
  config.strategy.vpp = vpp;
  config.strategy.microbatches = row.microbatches;
  config.costs.forward_s = row.forward_ms * 1e-3;
  config.costs.backward_input_s = row.backward_input_ms * 1e-3;
  config.costs.backward_weight_s = row.backward_weight_ms * 1e-3;
  config.costs.p2p_s = row.p2p_ms * 1e-3;
  const auto run = Prepare(config);
  INFO(run.status());
  REQUIRE(run.ok());
  const auto program = Lower(run->schedule.lowered, run->lower);
  REQUIRE(program.ok());
  const auto engine = FindEngine(engine_name);
  REQUIRE(engine.ok());
  const auto summary = (*engine)->run(*program, EngineOptions());
  INFO(summary.status());
  REQUIRE(summary.ok());
  double cost_s = 0;
  for (const RankTimes& rank : summary->times.at(0)) {
    cost_s = std::max(cost_s, rank.span_s());
  }
  return cost_s * 1e3;
}

void CheckTable(const char* engine) {
  for (const Row& row : kRows) {
    const double work_ms =
        row.microbatches *
        (row.forward_ms + row.backward_input_ms + row.backward_weight_ms);
    const auto rate = [&](double cost_ms) {
      return absl::StrFormat("%.4f", (cost_ms - work_ms) / cost_ms);
    };
    const auto published = [](double value) {
      return absl::StrFormat("%.4f", value);
    };
    INFO(row.model << ", pp " << row.pp << ", microbatches " << row.microbatches
                   << ", " << engine);
    CHECK(rate(CostMs(row, "1f1b", 1, engine)) == published(row.one_f_one_b));
    CHECK(rate(CostMs(row, "zb-h1", 1, engine)) == published(row.zb_h1));
    CHECK(rate(CostMs(row, "zb-h2", 1, engine)) == published(row.zb_h2));
    const double interleaved = CostMs(row, "interleaved-1f1b", row.vpp, engine);
    CHECK(rate(interleaved) == published(row.interleaved_plain));
    CHECK(rate(interleaved - row.pp * row.p2p_ms) ==
          published(row.interleaved));
  }
}

TEST_CASE("papers: zero-bubble table 5, fast engine", "[papers]") {
  CheckTable("fast");
}

TEST_CASE("papers: zero-bubble table 5, simgrid engine", "[papers]") {
  CheckTable("simgrid");
}

TEST_CASE("papers: reproduce prints the table and exits by it",
          "[papers][long]") {
  const testing::BinaryResult run = testing::RunBinary(
      {"reproduce", "zero-bubble-table5", "--engine", "fast", "--json"});
  INFO(run.err);
  REQUIRE(run.exit_code == 0);
  CHECK(run.err.empty());
  const Json object = Json::parse(run.out);
  CHECK(object["match"] == true);
  CHECK(object["compared"] == 84);
  CHECK(object["published"] == 72);
  // What it calls published is what was published.
  const Json& rows = object["experiments"][0]["rows"];
  REQUIRE(rows.size() == 84);
  size_t next = 0;
  for (const Row& row : kRows) {
    const std::pair<const char*, double> expected[] = {
        {"1f1b", row.one_f_one_b},
        {"zb-h1", row.zb_h1},
        {"zb-h2", row.zb_h2},
        {"zb-auto, limit pp", row.zb_1p},
        {"zb-auto, limit 2*pp", row.zb_2p},
        {"interleaved-1f1b", row.interleaved},
        {"interleaved-1f1b, plain span", row.interleaved_plain}};
    for (const auto& [schedule, published] : expected) {
      const Json& got = rows[next++];
      CHECK(got["schedule"] == schedule);
      const bool in_paper = published != row.interleaved_plain;
      CHECK(got["in_paper"] == in_paper);
      CHECK(got[in_paper ? "published" : "reference"].get<double>() ==
            published);
      // The planner finds the paper's plans, none better.
      CHECK(got["rounded"].get<double>() == published);
      CHECK(got["simulated"].get<double>() == Approx(published).margin(5e-5));
      const bool planned = absl::StartsWith(schedule, "zb-auto");
      CHECK(got["rule"] == (planned ? "at most" : "digits"));
    }
  }
  CHECK(
      testing::RunBinary({"reproduce", "all", "--engine", "fast"}).exit_code ==
      0);
}

TEST_CASE("papers: a value off its table does not match", "[papers]") {
  CHECK(Comparison{"", "", "0.2431", 0.24308, "0.2431"}.matches());
  CHECK(!Comparison{"", "", "0.2431", 0.24316, "0.2432"}.matches());
}

}  // namespace
}  // namespace pipewright::zero_bubble_table5_test
