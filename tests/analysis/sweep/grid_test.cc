// Grids: what axes, conditions and filters mean, against loops written by hand.
#include "sim/analysis/sweep/grid.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "sim/analysis/sweep/points.h"
#include "sim/analysis/sweep/sweep_file.h"

namespace pipewright::grid_test {
namespace {

using Strings = std::vector<std::string>;

SweepGrid GridOf(const std::string& yaml) {
  absl::StatusOr<std::optional<SweepFile>> file =
      ReadSweepFile(yaml, "sweep.yaml");
  INFO(file.status());
  REQUIRE(file.ok());
  REQUIRE(file->has_value());
  return (*file)->grid;
}

// "tp=1 pp=2", of every point, in order.
Strings PointsOf(const SweepGrid& grid, const RunConfig& base = {}) {
  REQUIRE(CheckGrid(grid).ok());
  Strings points;
  GridWalk walk(&grid, base);
  while (walk.Next()) {
    Strings words;
    for (size_t axis = 0; axis < grid.axes.size(); ++axis) {
      const int32_t choice = walk.choices()[axis];
      if (choice < 0) continue;
      for (size_t name = 0; name < grid.axes[axis].names.size(); ++name) {
        words.push_back(absl::StrCat(grid.axes[axis].names[name], "=",
                                     grid.axes[axis].values[choice][name]));
      }
    }
    points.push_back(absl::StrJoin(words, " "));
  }
  CHECK_FALSE(walk.Next());
  return points;
}

Strings ValuesOf(const std::string& text) {
  const absl::StatusOr<SweepAxis> axis = AxisOfText(text);
  INFO(text << ": " << axis.status());
  REQUIRE(axis.ok());
  Strings values;
  for (const Strings& choice : axis->values) {
    values.push_back(absl::StrJoin(choice, ":"));
  }
  return values;
}

TEST_CASE("sweep: axes are lists and ranges of fields and flags", "[sweep]") {
  CHECK(ValuesOf("strategy.tp=1,2,4") == Strings{"1", "2", "4"});
  CHECK(ValuesOf("tp=1, 2") == Strings{"1", "2"});
  CHECK(ValuesOf("--tp=8") == Strings{"8"});
  CHECK(ValuesOf("strategy.pp=1..4") == Strings{"1", "2", "3", "4"});
  CHECK(ValuesOf("strategy.pp=1..16*2") == Strings{"1", "2", "4", "8", "16"});
  CHECK(ValuesOf("strategy.pp=2..9+3") == Strings{"2", "5", "8"});
  CHECK(ValuesOf("costs.p2p=1ms..2ms+0.25ms") ==
        Strings{"1ms", "1.25ms", "1.5ms", "1.75ms", "2ms"});
  CHECK(ValuesOf("costs.p2p=0.1ms..0.3ms+0.1ms").size() == 3);
  CHECK(ValuesOf("strategy.layers=[1,2],[2,1]") == Strings{"1,2", "2,1"});
  CHECK(ValuesOf("tp,pp=1:8,8:1") == Strings{"1:8", "8:1"});
  CHECK(ValuesOf("schedule.name=1f1b,zb-h1") == Strings{"1f1b", "zb-h1"});
  CHECK(AxisOfText("schedule=1f1b")->names == Strings{"schedule.name"});
  CHECK(AxisOfText("strategy.vpp=1,2 when strategy.pp > 1")->when->text() ==
        "strategy.pp > 1");
}

TEST_CASE("sweep: a bad axis is refused with axis, value and what is allowed",
          "[sweep]") {
  struct Row {
    std::string text;
    Strings parts;
  };
  const std::vector<Row> table = {
      {"strategy.tpp=1", {"axis strategy.tpp", "did you mean 'strategy.pp'?"}},
      {"tp", {"--sweep: tp is not allowed", "FIELD=VALUES"}},
      {"strategy.tp=", {"axis strategy.tp", "a value between commas"}},
      {"strategy.tp=1,,2", {"a value between commas"}},
      {"strategy.tp=[1,2", {"brackets that close"}},
      {"strategy.tp=4..1", {"4..1+1", "a range that rises"}},
      {"strategy.tp=1..4*1", {"a factor above 1"}},
      {"strategy.tp=1..4+0", {"a step above 0"}},
      {"costs.p2p=1ms..2s+1ms", {"a range in one unit"}},
      {"strategy.tp=1..100000000", {"at most 1000000 values"}},
      {"tp,pp=1:2:3", {"axis strategy.tp,strategy.pp", "2 values"}},
      {"strategy.tp=1,2 when strategy.qp > 1",
       {"axis strategy.tp: when", "unknown field 'strategy.qp'"}},
      {"strategy.tp=1,2 when (strategy.pp > 1", {"allowed: ')'"}},
      {"strategy.tp=1,2 when strategy.pp > ", {"its end is not allowed"}},
  };
  for (const Row& row : table) {
    const absl::Status status = AxisOfText(row.text).status();
    INFO(row.text << ": " << status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    for (const std::string& part : row.parts) {
      INFO(part);
      CHECK(absl::StrContains(status.message(), part));
    }
  }
}

TEST_CASE("sweep: a file has axes, links, filters and a base", "[sweep]") {
  const std::string yaml =
      "base: {schedule: {name: 1f1b}}\n"
      "axes:\n"
      "  strategy.tp: [1, 2]\n"
      "  strategy.pp: {from: 1, to: 4, times: 2}\n"
      "  strategy.vpp: {values: [1, 2], when: strategy.pp > 2}\n"
      "linked:\n"
      "  - {strategy.recompute: [none, full], strategy.microbatch_size: [1, "
      "4]}\n"
      "filters:\n"
      "  - strategy.tp * strategy.pp <= 4\n"
      "  - not (strategy.recompute == full and strategy.tp == 2)\n";
  Strings expected;
  for (const int tp : {1, 2}) {
    for (const int pp : {1, 2, 4}) {
      if (tp * pp > 4) continue;
      for (const int vpp : {1, 2}) {
        if (pp <= 2 && vpp == 2) continue;
        for (const bool full : {false, true}) {
          if (full && tp == 2) continue;
          expected.push_back(
              absl::StrCat("strategy.tp=", tp, " strategy.pp=", pp,
                           pp > 2 ? absl::StrCat(" strategy.vpp=", vpp) : "",
                           " strategy.recompute=", full ? "full" : "none",
                           " strategy.microbatch_size=", full ? 4 : 1));
        }
      }
    }
  }
  CHECK(PointsOf(GridOf(yaml)) == expected);
}

TEST_CASE("sweep: conditions see the base, units and absent fields",
          "[sweep]") {
  RunConfig base;
  base.strategy.pp = 4;
  base.costs.p2p_s = 1e-3;
  const auto kept = [&](const std::string& filter) {
    SweepGrid grid;
    grid.axes.push_back(AxisOfText("strategy.tp=1,2,3").value());
    const absl::StatusOr<Expression> keep = Expression::Parse(filter);
    INFO(filter << ": " << keep.status());
    REQUIRE(keep.ok());
    grid.filters.push_back({*keep, "--filter"});
    return PointsOf(grid, base).size();
  };
  CHECK(kept("strategy.pp == 4") == 3);
  CHECK(kept("strategy.pp * strategy.tp > 7") == 2);
  CHECK(kept("costs.p2p < 2ms") == 3);
  CHECK(kept("costs.p2p == 0.001") == 3);
  CHECK(kept("costs.p2p > 1ms") == 0);
  CHECK(kept("costs.p2p == 1e-3") == 3);
  CHECK(kept("costs.p2p == 10E-4") == 3);
  CHECK(kept("costs.p2p != 1e-3") == 0);
  CHECK(kept("strategy.pp == 4e+0") == 3);
  CHECK(kept("strategy.cp == 1") == 0);
  CHECK(kept("strategy.cp != 1") == 3);
  CHECK(kept("strategy.cp + 1 > 0") == 0);
  CHECK(kept("strategy.tp % 2 == 1 or strategy.tp == 2") == 3);
  CHECK(kept("strategy.tp - 1 == -(1 - strategy.tp)") == 3);
  CHECK(kept("12 / strategy.tp / 2 == 3") == 1);
  CHECK(kept("not strategy.tp == 1 and strategy.tp < 3") == 1);
  CHECK(kept("schedule.name == 'zb-h1'") == 0);
  CHECK(kept("strategy.recompute != full") == 3);
  CHECK(kept("tp != 1") == 2);
  CHECK(kept("pp * tp > 7 and strategy.tp < 3") == 1);
  CHECK(Expression::Parse("tp > 1 and strategy.tp < 3")->fields() ==
        Strings{"strategy.tp"});
}

TEST_CASE("sweep: names with dashes and digits need no quotes", "[sweep]") {
  const auto kept = [](const std::string& filter) {
    SweepGrid grid;
    grid.axes.push_back(
        AxisOfText("schedule.name=1f1b,zb-h1,interleaved-1f1b,1f1b-v").value());
    grid.axes.push_back(AxisOfText("strategy.pp=4,8").value());
    RunConfig base;
    base.strategy.tp = 5;
    const absl::StatusOr<Expression> keep = Expression::Parse(filter);
    INFO(filter << ": " << keep.status());
    REQUIRE(keep.ok());
    grid.filters.push_back({*keep, "--filter"});
    return PointsOf(grid, base);
  };
  for (const char* const name :
       {"1f1b", "zb-h1", "interleaved-1f1b", "1f1b-v"}) {
    const Strings quoted = kept(absl::StrCat("schedule.name == '", name, "'"));
    CHECK(quoted.size() == 2);
    CHECK(kept(absl::StrCat("schedule.name == ", name)) == quoted);
    CHECK(kept(absl::StrCat("schedule.name != ", name)).size() == 6);
    CHECK(
        kept(absl::StrCat("schedule.name == ", name, " and pp == 4")).size() ==
        1);
  }
  // Fields and numbers are still subtracted from.
  CHECK(kept("strategy.pp == strategy.tp-1").size() == 4);
  CHECK(kept("strategy.pp == 9-strategy.tp").size() == 4);
  CHECK(absl::StrContains(
      Expression::Parse("schedule.name == microbatch-size").status().message(),
      "in quotes"));
}

TEST_CASE("sweep: a word that names nothing is refused in conditions",
          "[sweep]") {
  for (const char* const text :
       {"ppp != 4", "full == strategy.recompute", "strategy.tp > full",
        "microbatch-size > 1", "strategy.pp == tp", "strategy.pp == (full)"}) {
    INFO(text);
    CHECK_FALSE(Expression::Parse(text).ok());
  }
  CHECK(absl::StrContains(
      Expression::Parse("mikrobatches > 1").status().message(),
      "did you mean 'microbatches'?"));
}

TEST_CASE("sweep: a field twice and a condition on a later axis are refused",
          "[sweep]") {
  SweepGrid twice;
  twice.axes.push_back(AxisOfText("strategy.tp=1").value());
  twice.axes.push_back(AxisOfText("strategy.pp,strategy.tp=1:1").value());
  CHECK(absl::StrContains(CheckGrid(twice).message(), "is given twice"));
  SweepGrid later;
  later.axes.push_back(
      AxisOfText("strategy.vpp=1,2 when strategy.pp > 1").value());
  later.axes.push_back(AxisOfText("strategy.pp=1,2").value());
  CHECK(absl::StrContains(CheckGrid(later).message(), "is a later axis"));
}

TEST_CASE("sweep: a bad file is refused with line and axis", "[sweep]") {
  struct Row {
    std::string yaml;
    Strings parts;
  };
  const std::vector<Row> table = {
      {"axes: {strategy.tp: []}", {"sweep.yaml:1", "axis strategy.tp"}},
      {"axes:\n  strategy.tpp: [1]", {"sweep.yaml:2", "axis strategy.tpp"}},
      {"axes: {strategy.tp: {from: 1}}", {"from and to"}},
      {"axes: {strategy.tp: {values: [1], wen: x}}", {"did you mean 'when'?"}},
      {"axes: 3", {"axes: 3 is not allowed"}},
      {"linked: [{strategy.tp: [1, 2], strategy.pp: [1]}]",
       {"axis strategy.pp", "2 values, as strategy.tp has"}},
      {"axes: {}\nfilters: [strategy.tp >]", {"sweep.yaml:2", "filters"}},
      {"axes: {}\nseeds: 0", {"sweep.yaml:2", "seeds: 0 is not allowed"}},
      {"axes: {}\nfilter: []", {"sweep.yaml:2", "did you mean 'filters'?"}},
      {"axes: {}\nbase: [1]", {"sweep.yaml:2", "base"}},
  };
  for (const Row& row : table) {
    const absl::Status status = ReadSweepFile(row.yaml, "sweep.yaml").status();
    INFO(row.yaml << ": " << status);
    CHECK(status.code() == absl::StatusCode::kInvalidArgument);
    for (const std::string& part : row.parts) {
      INFO(part);
      CHECK(absl::StrContains(status.message(), part));
    }
  }
  CHECK_FALSE(ReadSweepFile("strategy: {pp: 4}", "run.yaml")->has_value());
}

TEST_CASE("sweep: a grid needs no base, in YAML and in JSON", "[sweep]") {
  const std::string text = "{\"axes\": {\"strategy.tp\": [1, 2]}}";
  for (const char* source : {"sweep.json", "sweep.yaml", "sweep"}) {
    INFO(source);
    const auto file = ReadSweepFile(text, source);
    REQUIRE(file.ok());
    REQUIRE(file->has_value());
    CHECK(PointsOf((*file)->grid).size() == 2);
    const auto base = ReadConfig((*file)->base_text, source);
    INFO(base.status());
    CHECK(base.ok());
  }
}

TEST_CASE("sweep: fields of a base keep the lines of their file", "[sweep]") {
  const auto file = ReadSweepFile(
      "axes: {strategy.tp: [1]}\nbase:\n  schedule:\n    name: 1f1b\n"
      "  strategy:\n    pp: 0\n    layout: \"Et*4|tL\"\n",
      "sweep.yaml");
  REQUIRE(file.ok());
  const absl::Status status =
      ReadConfig((*file)->base_text, "sweep.yaml").status();
  CHECK(absl::StrContains(status.message(), "sweep.yaml:6: strategy.pp: 0"));
}

}  // namespace
}  // namespace pipewright::grid_test
