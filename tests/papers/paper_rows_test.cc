// Rows of published tables: cells in texts, cells of other tables, fields.
#include "sim/analysis/reproduce/table.h"

#include <catch2/catch.hpp>
#include <map>
#include <string>

namespace pipewright::paper_rows_test {
namespace {

TableRow Row(const std::map<std::string, std::string>& cells) {
  return TableRow(cells);
}

TEST_CASE("tables: a text is filled with the cells of a row", "[papers]") {
  const TableRow row =
      Row({{"model", "1.5B"}, {"strategy.pp", "8"}, {"note", ""}});
  CHECK(row.Fill("{model}, pp {strategy.pp}{note}, {other}") ==
        "1.5B, pp 8, {other}");
  CHECK(row.Has("model"));
  CHECK_FALSE(row.Has("note"));
  CHECK_FALSE(row.Has("other"));
}

TEST_CASE("tables: an empty cell replaces nothing", "[papers]") {
  TableRow row = Row({{"a", "1"}, {"b", "2"}});
  row.Take(Row({{"a", "3"}, {"b", ""}, {"c", ""}}));
  CHECK(row.Text("a") == "3");
  CHECK(row.Text("b") == "2");
  CHECK(row.Text("c").empty());
}

TEST_CASE("tables: rows are joined by the columns that both have", "[papers]") {
  std::vector<TableRow> rows = {Row({{"model", "DeepSeek-V2"}}),
                                Row({{"model", "none"}})};
  JoinTable("simumax_memory/models", &rows);
  CHECK(rows[0].Text("model.hidden") == "5120");
  CHECK(rows[1].Text("model.hidden").empty());
  JoinTable("simumax_memory/recipes", &rows);
  CHECK_FALSE(rows[0].Has("recipe"));
}

TEST_CASE("tables: a cell in quotes has commas", "[papers]") {
  CHECK(ReadTable("llama3_table4/columns")[0].Text("label") == "MFU, per cent");
}

TEST_CASE("tables: columns with a dot are fields", "[papers]") {
  const TableRow row = Row({{"model", "llama3-8b"},
                            {"strategy.pp", "2"},
                            {"strategy.vpp", "1"},
                            {"strategy.layers", "15 17"},
                            {"costs.p2p_ms", "1.5"},
                            {"system.preset", "dgx-h100"},
                            {"gpus", "2"},
                            {"strategy.tp", ""}});
  const auto config = ConfigOf(row, "fast");
  REQUIRE(config.ok());
  CHECK(config->engine == "fast");
  CHECK(config->model.preset == "llama3-8b");
  CHECK(config->strategy.layers == std::vector<int64_t>{15, 17});
  CHECK(config->costs.p2p_s == 1.5e-3);
  CHECK_FALSE(config->strategy.tp.has_value());
  CHECK(config->schedule.name == "1f1b");
  CHECK(config->strategy.waiting == WaitRule::kBatched);
  // A pure delay blocks no rank, so there is nothing to wait for.
  const auto delayed = ConfigOf(Row({{"strategy.pp", "2"}}), "fast");
  REQUIRE(delayed.ok());
  CHECK_FALSE(delayed->strategy.waiting.has_value());
  const auto wrong = ConfigOf(Row({{"strategy.pp", "none"}}), "fast");
  CHECK_FALSE(wrong.ok());
}

TEST_CASE("tables: several chunks are interleaved", "[papers]") {
  const auto config = ConfigOf(Row({{"strategy.vpp", "2"}}), "fast");
  REQUIRE(config.ok());
  CHECK(config->schedule.name == "interleaved-1f1b");
  CHECK_FALSE(config->strategy.waiting.has_value());
}

}  // namespace
}  // namespace pipewright::paper_rows_test
