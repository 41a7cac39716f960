// Building blocks of the HTML report: the style sheet, tables, a bar chart.
// They know nothing of schedules, so that other pages can use them.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// Everything between <style> and </style>; light and dark.
absl::string_view PageStyle();

// <section> with a heading; `content` is HTML.
std::string SectionHtml(absl::string_view id, absl::string_view heading,
                        absl::string_view content);

// A whole page around `body`, which is HTML; `title` is text.
std::string PageHtml(absl::string_view title, absl::string_view body);

struct HtmlTable {
  std::vector<std::string> header;  // text, escaped here
  std::vector<std::vector<std::string>> rows;
  // The first columns are words and flush left, the others numbers.
  size_t text_columns = 1;
  // Where the first cell of each row leads ("#zb-h1"); empty: nowhere.
  std::vector<std::string> links;
};

// More than `limit` rows are cut to the first and the last limit/2.
std::string TableHtml(const HtmlTable& table, size_t limit);

// Upright bars labelled 0, 1, … below and with their values above where there
// is room. `name` describes the chart to those who do not see it, `bar_name`
// each bar in its tooltip ("rank").
std::string BarChartSvg(const std::vector<double>& values,
                        absl::string_view name, absl::string_view bar_name);

}  // namespace pipewright
