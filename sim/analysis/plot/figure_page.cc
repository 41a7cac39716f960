// The page of a figure: charts and a table that the script of all pages draws,
// and the same figure as a static picture.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/plot/figure.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"
#include "sim/report/page_data.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

// Rows of the static table, which stands in print; the script's has all.
constexpr size_t kMostStaticRows = 200;
constexpr char kMemoryPath[] = "peak_memory_bytes.max";

// A text of each point, as numbers of a list of different ones; -1: none.
struct WordColumn {
  std::vector<std::string> dictionary;
  absl::flat_hash_map<std::string, int32_t> codes_of;
  std::vector<int32_t> codes;

  void Set(size_t point, const std::string& word) {
    const auto [place, added] =
        codes_of.try_emplace(word, static_cast<int32_t>(dictionary.size()));
    if (added) dictionary.push_back(word);
    codes[point] = place->second;
  }
};

class FigurePage {
 public:
  explicit FigurePage(const Figure& figure) : figure_(figure) {}

  std::string Data() {
    CollectColumns();
    Json columns = Json::array();
    Json names = Json::array();
    WordColumn series;
    series.codes.assign(figure_.points.size(), 0);
    for (size_t index = 0; index < figure_.points.size(); ++index) {
      names.push_back(figure_.points[index].name);
      series.Set(index, figure_.points[index].series);
    }
    // What was asked for stands before what came out.
    std::stable_partition(number_order_.begin(), number_order_.end(), IsField);
    for (const std::string& name : word_order_) {
      const WordColumn& column = words_[name];
      columns.push_back({{"name", name},
                         {"title", AxisWords(name)},
                         {"text", true},
                         {"dict", column.dictionary},
                         {"codes", data_.Add(column.codes)}});
    }
    for (const std::string& name : number_order_) {
      Json column = {{"name", name},
                     {"title", TitleOf(name)},
                     {"values", data_.Add(numbers_[name])}};
      AddRange(name, &column);
      columns.push_back(std::move(column));
    }
    data_.json()["points"] = {{"count", figure_.points.size()},
                              {"front", figure_.front},
                              {"columns", std::move(columns)},
                              {"names", std::move(names)},
                              {"series",
                               {{"names", series.dictionary},
                                {"title", figure_.series_path.empty()
                                              ? std::string("Series")
                                              : AxisWords(figure_.series_path)},
                                {"codes", data_.Add(series.codes)}}},
                              {"charts", Charts()}};
    AddCommands();
    return data_.Elements();
  }

 private:
  static bool IsField(const std::string& path) {
    for (const char* section :
         {"strategy.", "schedule.", "system.", "model.", "costs."}) {
      if (absl::StartsWith(path, section)) return true;
    }
    return false;
  }

  std::string TitleOf(const std::string& path) const {
    for (const FigureAxis* axis : {&figure_.x, &figure_.y}) {
      if (axis->path == path && !axis->label.empty()) return axis->label;
    }
    return AxisWords(path);
  }

  // What all have in common stands once.
  void AddCommands() {
    std::vector<absl::string_view> commands;
    for (const FigurePoint& point : figure_.points) {
      commands.push_back(point.command);
    }
    if (!HasCommands()) return;
    absl::string_view common = commands[0];
    for (const absl::string_view each : commands) {
      size_t length = 0;
      while (length < std::min(common.size(), each.size()) &&
             common[length] == each[length]) {
        ++length;
      }
      common = common.substr(0, length);
    }
    for (absl::string_view& each : commands) each.remove_prefix(common.size());
    data_.json()["points"]["command"] = {{"common", common}, {"own", commands}};
  }

  bool HasCommands() const {
    return !figure_.points.empty() && !figure_.points[0].command.empty();
  }

  void CollectColumns() {
    const size_t count = figure_.points.size();
    for (const std::string& path : {figure_.x.path, figure_.y.path}) {
      Numbers(path);
    }
    for (size_t index = 0; index < count; ++index) {
      const FigurePoint& point = figure_.points[index];
      for (const auto& [name, value] : point.numbers) {
        Numbers(name)[index] = value;
      }
      for (const auto& [name, range] : point.ranges) {
        ranges_[name][index] = range;
      }
      if (point.x_range) ranges_[figure_.x.path][index] = *point.x_range;
      if (point.y_range) ranges_[figure_.y.path][index] = *point.y_range;
      Numbers(figure_.x.path)[index] = point.x;
      Numbers(figure_.y.path)[index] = point.y;
      // Their fields say it in columns of their own.
      if (!HasCommands()) Words("run")->Set(index, point.name);
      if (!point.series.empty() && figure_.series_path.empty()) {
        Words("series")->Set(index, point.series);
      }
      for (const auto& [name, word] : point.words) {
        Words(name)->Set(index, word);
      }
    }
  }

  // How far off the values of a column may be, where any report says so.
  void AddRange(const std::string& name, Json* column) {
    const auto found = ranges_.find(name);
    if (found == ranges_.end()) return;
    const double nothing = std::numeric_limits<double>::quiet_NaN();
    std::vector<double> low(figure_.points.size(), nothing);
    std::vector<double> high(figure_.points.size(), nothing);
    for (const auto& [point, range] : found->second) {
      low[point] = range.first;
      high[point] = range.second;
    }
    (*column)["low"] = data_.Add(low);
    (*column)["high"] = data_.Add(high);
  }

  std::vector<double>& Numbers(const std::string& name) {
    std::vector<double>& values = numbers_[name];
    if (values.empty()) {
      number_order_.push_back(name);
      values.assign(figure_.points.size(),
                    std::numeric_limits<double>::quiet_NaN());
    }
    return values;
  }

  WordColumn* Words(const std::string& name) {
    WordColumn* const column = &words_[name];
    if (column->codes.empty()) {
      word_order_.push_back(name);
      column->codes.assign(figure_.points.size(), -1);
    }
    return column;
  }

  // What was asked for, then what everybody asks for, where runs have it.
  Json Charts() const {
    std::vector<std::pair<std::string, std::string>> charts = {
        {figure_.x.path, figure_.y.path}};
    for (const char* y : {"bubble_fraction.per_rank", "tokens_per_s"}) {
      const std::pair<std::string, std::string> chart = {kMemoryPath, y};
      if (numbers_.count(kMemoryPath) == 0 || numbers_.count(y) == 0 ||
          chart == charts.front()) {
        continue;
      }
      charts.push_back(chart);
    }
    Json out = Json::array();
    for (const auto& [x, y] : charts) out.push_back(Json::array({x, y}));
    return out;
  }

  const Figure& figure_;
  PageData data_;
  std::map<std::string, std::vector<double>> numbers_;
  std::vector<std::string> number_order_;
  // Ranges of a column, by point.
  std::map<std::string, std::map<size_t, std::pair<double, double>>> ranges_;
  std::map<std::string, WordColumn> words_;
  std::vector<std::string> word_order_;
};

std::string StaticTable(const Figure& figure) {
  double most_x = 0;
  double most_y = 0;
  for (const FigurePoint& point : figure.points) {
    most_x = std::max(most_x, std::abs(point.x));
    most_y = std::max(most_y, std::abs(point.y));
  }
  const AxisUnit x = UnitOf(figure.x.path, most_x);
  const AxisUnit y = UnitOf(figure.y.path, most_y);
  const auto head = [](const FigureAxis& axis, const AxisUnit& unit) {
    const std::string words =
        axis.label.empty() ? AxisWords(axis.path) : axis.label;
    return unit.name.empty() ? words : absl::StrCat(words, ", ", unit.name);
  };
  HtmlTable table;
  table.text_columns = 3;
  table.header = {"run", "series", "on the front", head(figure.x, x),
                  head(figure.y, y)};
  std::vector<bool> on_front(figure.points.size());
  for (const size_t index : ParetoFront(figure)) on_front[index] = true;
  for (size_t index = 0; index < figure.points.size(); ++index) {
    const FigurePoint& point = figure.points[index];
    table.rows.push_back({point.name, point.series,
                          on_front[index] ? "yes" : "no",
                          absl::StrFormat("%.6g", point.x / x.size),
                          absl::StrFormat("%.6g", point.y / y.size)});
  }
  return TableHtml(table, kMostStaticRows);
}

// The page's columns are called by their paths, and its scripts take "_s" for
// seconds.
Figure NamedByUnit(Figure figure) {
  if (!figure.in_units) return figure;
  const auto rename = [](std::string* path) {
    if (IsTimePath(*path)) *path = PathInUnits(*path);
  };
  rename(&figure.x.path);
  rename(&figure.y.path);
  for (FigurePoint& point : figure.points) {
    for (auto& [path, value] : point.numbers) rename(&path);
    for (auto& [path, range] : point.ranges) rename(&path);
  }
  return figure;
}

}  // namespace

std::string FigureHtml(const Figure& drawn) {
  const Figure figure = NamedByUnit(drawn);
  const std::string title =
      figure.title.empty() ? absl::StrCat(AxisWords(figure.y.path), " against ",
                                          AxisWords(figure.x.path))
                           : figure.title;
  return ChartPageHtml(
      title,
      absl::StrCat(
          HeaderHtml(title),
          figure.verdict.empty()
              ? ""
              : SectionHtml("verdict", "Verdict", ListHtml(figure.verdict)),
          SectionHtml("charts", "Charts",
                      "<div id=\"scatter\" class=\"charts\"></div>\n<div "
                      "id=\"point\"></div>\n",
                      kShownLive),
          SectionHtml("all-runs", "Runs", "<div id=\"runs-data\"></div>\n",
                      kShownLive),
          SectionHtml("figure", "Figure", PictureHtml(FigureSvg(drawn)),
                      kShownNoCharts),
          SectionHtml("runs", "Runs", StaticTable(figure), kShownStatic),
          figure.report.empty()
              ? ""
              : SectionHtml("report", "Report", PlainHtml(figure.report))),
      FigurePage(figure).Data());
}

}  // namespace pipewright
