// Building blocks of every page: style sheet and script (sim/report/web),
// cards, lists, tables, a bar chart. They know nothing of schedules. A page is
// one file that needs no network; without its script it shows static pictures,
// and so it does in print.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"

namespace pipewright {

// Everything between <style> and </style>; light and dark.
absl::string_view PageStyle();

// When a section is shown: always; where the script draws; or where it does
// not, and in print.
inline constexpr char kShownLive[] = "live-only";
inline constexpr char kShownStatic[] = "static";
// As kShownStatic, and where the script has nothing to draw charts with.
inline constexpr char kShownNoCharts[] = "static no-charts";

// <section> with a heading; `content` is HTML. `shown`: "" for always.
std::string SectionHtml(absl::string_view id, absl::string_view heading,
                        absl::string_view content,
                        absl::string_view shown = "");

// Head of a page; all is text. `quiet`: in small print below the title.
std::string HeaderHtml(absl::string_view title, absl::string_view quiet = "");

// A picture that scrolls if it is wider than the page. `shown`: see
// SectionHtml.
std::string PictureHtml(absl::string_view svg, absl::string_view shown = "");

// Text as it stands, each letter as wide as another.
std::string PlainHtml(absl::string_view text);

// A list, a text a point.
std::string ListHtml(const std::vector<std::string>& texts);

// A section that stands out with these texts; "" without any.
std::string WarningsHtml(const std::vector<std::string>& texts,
                         absl::string_view heading = "Warnings");

// Words with what they mean, or names with their values; all is text.
using HtmlWords = std::vector<std::pair<std::string, std::string>>;
std::string WordsHtml(const HtmlWords& words);

// A box of a headline; all is text, and what is empty is left out.
struct HtmlCard {
  std::string heading;
  std::string figure;  // one large value
  HtmlWords values;
  std::vector<std::string> notes;  // in small print, a paragraph each
};
std::string CardHtml(const HtmlCard& card);

// A whole page around `body`, which is HTML; `title` is text. `data`: what the
// script draws, PageData::Elements().
std::string PageHtml(absl::string_view title, absl::string_view body,
                     absl::string_view data = "");

// The same for a page whose data have charts (the element #scatter).
std::string ChartPageHtml(absl::string_view title, absl::string_view body,
                          absl::string_view data);

// What draws charts, "uPlot 1.6.32"; "" where the program was built without
// npm. Then a page shows the section that is kShownNoCharts in their place.
std::string ChartLibrary();

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
