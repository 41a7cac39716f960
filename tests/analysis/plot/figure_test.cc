// Figures: paths of reports, the Pareto front, and pictures of a stated size.
#include "sim/analysis/plot/figure.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <random>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "sim/analysis/plot/read_points.h"
#include "sim/base/file.h"
#include "sim/base/json.h"
#include "tests/support/json.h"
#include "tests/support/page_block.h"
#include "tests/support/run_binary.h"

namespace pipewright::figure_test {
namespace {

using testing::TemporaryFolder;

Figure Points(const std::vector<std::pair<double, double>>& places) {
  Figure figure;
  figure.x.path = "peak_memory_bytes.max";
  figure.y.path = "bubble_fraction.per_rank";
  for (const auto& [x, y] : places) {
    FigurePoint point;
    point.name = "<run> & \"more\"";
    point.x = x;
    point.y = y;
    figure.points.push_back(point);
  }
  return figure;
}

TEST_CASE("plot: a path leads to one value of a report", "[plot]") {
  const Json report =
      ParseJson(
          R"({"a": {"b": 2.5}, "list": [3, 1, 8], "ranks": [{"idle_s": 7}],
              "none": null, "word": "x"})")
          .value();
  const auto at = [&](const char* path) { return ValueAt(report, path); };
  CHECK(*at("a.b") == 2.5);
  CHECK(*at("list.max") == 8);
  CHECK(*at("list.min") == 1);
  CHECK(*at("list.mean") == 4);
  CHECK(*at("list.sum") == 12);
  CHECK(*at("list.1") == 1);
  CHECK(*at("ranks.0.idle_s") == 7);
  CHECK(*at("word") == "x");
  for (const char* path :
       {"none", "c", "list.9", "list.max.x", "ranks.max", "a.b.c", ""}) {
    INFO(path);
    CHECK(at(path)->is_null());
  }
  CHECK(absl::StrContains(at("list").status().message(), ".max"));
  CHECK(absl::StrContains(at("a").status().message(), "PATH.KEY"));
}

TEST_CASE("plot: the front is that of a search over all pairs", "[plot]") {
  std::mt19937 random(5);
  for (int round = 0; round < 200; ++round) {
    std::vector<std::pair<double, double>> places;
    for (int count = 0; count < 12; ++count) {
      places.emplace_back(random() % 8, random() % 8);
    }
    Figure figure = Points(places);
    figure.x.more_is_better = round % 2 == 1;
    figure.y.more_is_better = round % 4 >= 2;
    const auto better = [](double one, double other, bool more) {
      return more ? one > other : one < other;
    };
    std::set<std::pair<double, double>> expected;
    for (const auto& own : places) {
      bool beaten = false;
      for (const auto& other : places) {
        const bool worse =
            better(own.first, other.first, figure.x.more_is_better) ||
            better(own.second, other.second, figure.y.more_is_better);
        beaten |= other != own && !worse;
      }
      if (!beaten) expected.insert(own);
    }
    std::set<std::pair<double, double>> found;
    for (const size_t index : ParetoFront(figure)) {
      found.insert(places[index]);
    }
    CHECK(found == expected);
  }
}

TEST_CASE("plot: an axis has the unit of its path", "[plot]") {
  CHECK(UnitOf("peak_memory_bytes.max", 3e9).name == "GiB");
  CHECK(UnitOf("iteration_s", 0.02).name == "ms");
  CHECK(UnitOf("ranks.0.idle_s", 2).name == "s");
  CHECK(UnitOf("tokens_per_s", 2e5).name.empty());
  CHECK(UnitOf("bubble_fraction.global", 0.2).size == 0.01);
  CHECK(UnitOf("pp", 8).name.empty());
}

TEST_CASE("plot: a picture has its size and its names are escaped", "[plot]") {
  Figure figure = Points({{1e9, 0.1}, {2e9, 0.05}});
  figure.width_mm = 85;
  figure.height_mm = 60;
  figure.font_pt = 9;
  figure.title = "<b>";
  const std::string svg = FigureSvg(figure);
  CHECK(absl::StrContains(svg, "width=\"85mm\" height=\"60mm\""));
  CHECK(absl::StrContains(svg, "font-size=\"9\""));
  CHECK(absl::StrContains(svg, "&lt;b&gt;"));
  CHECK_FALSE(absl::StrContains(svg, "<b>"));
  CHECK_FALSE(absl::StrContains(FigureHtml(figure), "<run>"));
  // One point, and points that are all alike, are drawn too.
  CHECK_FALSE(absl::StrContains(FigureSvg(Points({{1, 1}})), "nan"));
  CHECK_FALSE(absl::StrContains(FigureSvg(Points({{0, 0}})), "nan"));
}

TEST_CASE("plot: PDF and PNG come from the SVG and are the same twice",
          "[plot]") {
  const Figure figure = Points({{1e9, 0.1}, {2e9, 0.05}});
  const std::string svg = FigureSvg(figure);
  const auto pdf = PdfOf(svg, 120, 80);
  if (!pdf.ok()) {
    // Without the libraries the message says which package has them.
    CHECK(absl::StrContains(pdf.status().message(), "librsvg2-2"));
    return;
  }
  CHECK(absl::StartsWith(*pdf, "%PDF-"));
  CHECK(*pdf == *PdfOf(svg, 120, 80));
  // 120 mm are 340.157 points.
  CHECK(absl::StrContains(*pdf, "340.15"));
  CHECK_FALSE(*pdf == *PdfOf(FigureSvg(Points({{1e9, 0.1}})), 120, 80));
  const auto png = PngOf(svg, 120, 80);
  REQUIRE(png.ok());
  CHECK(png->substr(1, 3) == "PNG");
  CHECK(*png == *PngOf(svg, 120, 80));
  // Width in the header, big-endian: 120 mm at 300 dots an inch.
  const auto byte = [&](size_t at) {
    return static_cast<unsigned>(static_cast<unsigned char>((*png)[at]));
  };
  CHECK((byte(18) << 8 | byte(19)) == 1417);
  CHECK_FALSE(PdfOf("<svg", 120, 80).ok());
}

TEST_CASE("plot: reports are one object, a list, or one a line", "[plot]") {
  const TemporaryFolder folder;
  const std::string one = R"({"schedule": "1f1b", "iteration_s": 2,
      "iteration_interval_s": [1.5, 3], "peak_activations": [4, 2]})";
  std::string line = one;
  line.erase(std::remove(line.begin(), line.end(), '\n'), line.end());
  const PointPaths paths = {"peak_activations.max", "iteration_s", ""};
  RunContext context;
  const auto count = [&](const std::string& text) {
    const auto read =
        ReadPointsOf({folder.Write("r.json", text)}, paths, &context);
    INFO(read.status());
    REQUIRE(read.ok());
    CHECK(read->points[0].x == 4);
    CHECK(read->points[0].y == 2);
    CHECK(read->points[0].y_range == std::pair(1.5, 3.0));
    return read->points.size();
  };
  CHECK(count(one) == 1);
  CHECK(count(absl::StrCat("[", one, ",", one, "]")) == 2);
  CHECK(count(absl::StrCat(line, "\n\n", line, "\n", line, "\n")) == 3);
  // What does not fit is not drawn, and a warning counts it.
  std::string misfit = line;
  misfit.insert(1, "\"fits\": false, ");
  const auto mixed = ReadPointsOf(
      {folder.Write("r.json", absl::StrCat(line, "\n", misfit, "\n"))}, paths,
      &context);
  REQUIRE(mixed.ok());
  CHECK(mixed->points.size() == 1);
  CHECK(mixed->warnings ==
        std::vector<std::string>{"1 run does not fit and is not drawn"});
  const auto refusal = [&](const std::string& text, const PointPaths& wanted) {
    return std::string(
        ReadPointsOf({folder.Write("r.json", text)}, wanted, &context)
            .status()
            .message());
  };
  CHECK(absl::StrContains(refusal(misfit, paths), "no run fits"));
  CHECK(absl::StrContains(refusal("nonsense", paths), "r.json:1"));
  CHECK(absl::StrContains(refusal("[1]", paths), "not a report"));
  CHECK(absl::StrContains(refusal(one, {"iteration", "iteration_s", ""}),
                          "did you mean 'iteration_s'"));
  CHECK(absl::StrContains(refusal(one, {"schedule", "iteration_s", ""}),
                          "no number"));
}

TEST_CASE("plot: columns of a page have how far off their values may be",
          "[plot]") {
  Figure figure = Points({{1e9, 0.3}, {2e9, 0.2}, {3e9, 0.25}});
  for (size_t index = 0; index < 3; ++index) {
    figure.points[index].numbers = {{"iteration_s", 1.0 + index}};
  }
  figure.points[1].ranges = {{"iteration_s", {1.5, 2.75}}};
  figure.points[2].y_range = {0.2, 0.5};
  const testing::PageBlock page(FigureHtml(figure));
  int with_ranges = 0;
  const auto column = [&](const std::string& name) {
    for (const auto& each : page.json()["points"]["columns"]) {
      if (each["name"] == name) return each;
    }
    FAIL("no column " << name);
    return testing::Json();
  };
  for (const auto& each : page.json()["points"]["columns"]) {
    CHECK(each.contains("low") == each.contains("high"));
    with_ranges += each.contains("low");
  }
  CHECK(with_ranges == 2);
  const testing::Json step = column("iteration_s");
  CHECK(page.Column<double>(step["values"]) == std::vector<double>{1, 2, 3});
  const auto only = [&](const testing::Json& place, size_t row, double value) {
    const std::vector<double> values = page.Column<double>(place);
    REQUIRE(values.size() == 3);
    for (size_t index = 0; index < 3; ++index) {
      INFO(index);
      CHECK(std::isnan(values[index]) == (index != row));
    }
    CHECK(values[row] == value);
  };
  only(step["low"], 1, 1.5);
  only(step["high"], 1, 2.75);
  const testing::Json bubble = column("bubble_fraction.per_rank");
  only(bubble["low"], 2, 0.2);
  only(bubble["high"], 2, 0.5);
}

TEST_CASE("plot: reports give the interval of the step to its column",
          "[plot]") {
  const TemporaryFolder folder;
  RunContext context;
  PointPaths paths = {"peak_activations.max", "bubble_fraction.global", ""};
  paths.columns = true;
  const auto read =
      ReadPointsOf({folder.Write("r.json",
                                 R"([{"schedule": "1f1b", "iteration_s": 2,
                         "iteration_interval_s": [1.5, 3],
                         "bubble_fraction": {"global": 0.1},
                         "peak_activations": [4, 2]},
                        {"schedule": "gpipe", "iteration_s": 2,
                         "bubble_fraction": {"global": 0.2},
                         "peak_activations": [8, 2]}])")},
                   paths, &context);
  INFO(read.status());
  REQUIRE(read.ok());
  REQUIRE(read->points.size() == 2);
  using Ranges = decltype(FigurePoint::ranges);
  CHECK(read->points[0].ranges == Ranges{{"iteration_s", {1.5, 3}}});
  CHECK_FALSE(read->points[0].y_range);
  CHECK(read->points[1].ranges.empty());
}

// Hidden: writes the page that tests/browser opens; check_charts.js knows its
// numbers.
TEST_CASE("plot: page for the browser test", "[.browser-pages]") {
  const char* folder = std::getenv("PIPEWRIGHT_BROWSER_PAGES");
  REQUIRE(folder != nullptr);
  Figure figure = Points({{1e9, 0.3},
                          {2e9, 0.2},
                          {3e9, 0.25},
                          {4e9, 0.1},
                          {5e9, 0.15},
                          {6e9, 0.1},
                          {7e9, 0.05},
                          {7e9, 0.2}});
  for (size_t index = 0; index < figure.points.size(); ++index) {
    figure.points[index].name = absl::StrCat("<b class='injected'>", index);
    figure.points[index].numbers = {{"strategy.tp", 1 << index % 3}};
    if (index % 3 != 0) continue;
    const double y = figure.points[index].y;
    figure.points[index].y_range = {0.9 * y, 1.2 * y};
  }
  REQUIRE(
      WriteFile(absl::StrCat(folder, "/plot.html"), FigureHtml(figure)).ok());
  // As of a sweep, with so many points as a page has to bear.
  Figure sweep;
  sweep.x.path = "peak_memory_bytes.max";
  sweep.y = {"tokens_per_s", true};
  sweep.series_path = "schedule";
  sweep.verdict = {"Fastest: <b class='injected'>"};
  for (int index = 0; index < 10000; ++index) {
    FigurePoint& point = sweep.points.emplace_back();
    point.name = absl::StrCat("run ", index);
    point.series = index % 2 == 0 ? "1f1b" : "zb-h1";
    point.x = 1e9 * (1 + (index * 7919) % 10000 / 1000.0);
    point.y = 200000.0 + (index * 104729) % 10000;
    point.words = {{"schedule", point.series}};
    point.numbers = {{"strategy.tp", 1 << index % 4}};
    point.command = absl::StrCat(
        "pipewright simulate --set strategy.pp=4 --set run=", index);
  }
  REQUIRE(
      WriteFile(absl::StrCat(folder, "/sweep.html"), FigureHtml(sweep)).ok());
}

std::vector<std::string> TextsOf(const std::string& svg) {
  std::vector<std::string> texts;
  const std::regex text("<text[^>]*>([^<]*)</text>");
  for (std::sregex_iterator at(svg.begin(), svg.end(), text), end; at != end;
       ++at) {
    texts.push_back((*at)[1]);
  }
  return texts;
}

bool Has(const std::vector<std::string>& texts, const std::string& text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

TEST_CASE("plot: axes have words, units and separators", "[plot]") {
  Figure figure = Points({{1e10, 0.1}, {2e10, 0.05}});
  std::vector<std::string> texts = TextsOf(FigureSvg(figure));
  CHECK(Has(texts, "Peak memory, GiB"));
  CHECK(Has(texts, "Bubble fraction per rank, %"));
  figure.x.label = "GiB of an H100";
  figure.y = {"tokens_per_s", true};
  figure.points[0].y = 180000;
  figure.points[1].y = 260000;
  texts = TextsOf(FigureSvg(figure));
  CHECK(Has(texts, "GiB of an H100"));
  CHECK(Has(texts, "Throughput, tokens/s"));
  CHECK(Has(texts, "200,000"));
  CHECK(AxisWords("ranks.0.idle_s") == "Ranks 0 idle");
  CHECK(AxisWords("strategy.microbatches") == "Microbatches");
}

TEST_CASE("plot: a mark at 0 is clear of the axis", "[plot]") {
  Figure figure = Points({{0, 0}, {4e9, 0.2}});
  figure.front = false;
  const std::string svg = FigureSvg(figure);
  std::smatch mark;
  REQUIRE(std::regex_search(
      svg, mark, std::regex("<circle cx=\"([\\d.]+)\" cy=\"([\\d.]+)\"")));
  std::smatch axis;
  REQUIRE(std::regex_search(
      svg, axis,
      std::regex("stroke=\"#1A1A1A\"[^>]* d=\"M([\\d.]+) ([\\d.]+)h")));
  // Half a mark of 0.32 em of 8 points, and more.
  CHECK(std::stod(mark[1]) > std::stod(axis[1]) + 0.4 * 8);
  CHECK(std::stod(mark[2]) < std::stod(axis[2]) - 0.4 * 8);
}

TEST_CASE("plot: few series have labels, many a legend with its field",
          "[plot]") {
  Figure figure = Points({});
  figure.series_path = "strategy.tp";
  const auto add = [&](int series, double x, double y) {
    FigurePoint& point = figure.points.emplace_back();
    point.series = absl::StrCat(series);
    point.x = x;
    point.y = y;
  };
  for (int series = 1; series <= 8; ++series) {
    add(series, 1e9 * series, 0.1);
    add(series, 1e9 * series, 0.3);
  }
  std::vector<std::string> texts = TextsOf(FigureSvg(figure));
  CHECK(Has(texts, "tp 8"));
  CHECK_FALSE(Has(texts, "Tensor-parallel size:"));
  add(9, 9e9, 0.1);
  add(9, 9e9, 0.3);
  texts = TextsOf(FigureSvg(figure));
  CHECK(Has(texts, "Tensor-parallel size:"));
  CHECK(Has(texts, "9"));
  CHECK_FALSE(Has(texts, "tp 9"));
  // Of one point each, those in one place share a label.
  figure.points.clear();
  for (int series = 1; series <= 12; ++series) {
    add(series, 2e9 * (series / 2), 0.1 * (series / 2 % 3));
  }
  texts = TextsOf(FigureSvg(figure));
  CHECK(Has(texts, "tp 2, tp 3"));
  CHECK_FALSE(Has(texts, "Tensor-parallel size:"));
}

TEST_CASE("plot: schedules that differ are series by themselves", "[plot]") {
  const TemporaryFolder folder;
  RunContext context;
  const PointPaths paths = {"pp", "iteration_s", ""};
  const auto series = [&](const char* other) {
    const auto read = ReadPointsOf(
        {folder.Write(
            "r.json",
            absl::StrCat(R"([{"schedule": "1f1b", "pp": 2, "iteration_s": 2},
                             {"schedule": ")",
                         other, R"(", "pp": 4, "iteration_s": 3}])"))},
        paths, &context);
    REQUIRE(read.ok());
    return std::vector<std::string>{read->series_path, read->points[0].series,
                                    read->points[1].series};
  };
  CHECK(series("gpipe") ==
        std::vector<std::string>{"schedule", "1f1b", "gpipe"});
  CHECK(series("1f1b") == std::vector<std::string>{"", "", ""});
}

TEST_CASE("plot: the command of a point has its fields, quoted", "[plot]") {
  CHECK(SimulateCommand("strategy.pp: 2\nschedule.name: it's\n",
                        {{"strategy.pp", "4"}}) ==
        "pipewright simulate --set 'schedule.name=it'\\''s' --set "
        "strategy.pp=4");
}

}  // namespace
}  // namespace pipewright::figure_test
