#include "sim/report/html_parts.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/report/format.h"
#include "sim/report/svg_parts.h"

namespace pipewright {
namespace {

constexpr absl::string_view kStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #f6f7f9; --card: #ffffff; --ink: #1a1a1a; --quiet: #565d68;
  --rule: #dde1e7; --idle: #e4e4e4; --accent: #0072b2; --alert: #fff4e0;
  --alert-rule: #e69f00; --bad: #a3001c;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171c; --card: #1d2128; --ink: #e8eaee; --quiet: #a5adb9;
    --rule: #363c47; --idle: #323843; --accent: #56b4e9; --alert: #33291a; --bad: #ff8a80;
  }
  .grid [fill="#404040"] { fill: #c8ccd2; }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; padding: 1.5rem clamp(.75rem, 3vw, 2.5rem) 3rem;
  max-width: 110rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif;
}
h1 { margin: 0; font-size: 1.7rem; line-height: 1.2; }
h2 { margin: 0 0 .75rem; font-size: 1.15rem; }
p { margin: .4rem 0; max-width: 75ch; }
.quiet { color: var(--quiet); font-size: .9rem; }
header, section { margin-bottom: 1.25rem; }
section {
  padding: 1.1rem 1.25rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: .6rem;
}
.cards {
  display: grid; gap: 1rem; padding: 0; border: 0; background: none;
  grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr));
}
.cards h2 { grid-column: 1 / -1; margin: 0; }
.card {
  padding: 1rem 1.25rem; background: var(--card);
  border: 1px solid var(--rule); border-radius: .6rem;
}
.card h3 { margin: 0; font-size: .95rem; font-weight: 600; }
.card dl {
  display: grid; grid-template-columns: auto 1fr; gap: 0 .9rem;
  align-items: baseline; margin: .3rem 0;
}
.card dt { color: var(--quiet); }
.card dd, .figure {
  margin: 0; font-size: 1.45rem; font-weight: 650;
  font-variant-numeric: tabular-nums;
}
.figure { margin: .3rem 0; font-size: 2rem; line-height: 1.2; }
.scroll { overflow: auto; }
.table { max-height: 32rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .9rem; text-align: right; white-space: nowrap; }
th { position: sticky; top: 0; background: var(--card); }
th { border-bottom: 2px solid var(--rule); font-weight: 600; }
td { border-bottom: 1px solid var(--rule); }
a { color: var(--accent); }
#refused td { white-space: normal; min-width: 9rem; }
.word { text-align: left; }
.grid { margin-top: .5rem; }
.grid svg { display: block; max-width: none; }
#fit:checked ~ .grid svg { width: 100%; height: auto; }
#fit:checked ~ section .grid svg {
  width: 100%; min-width: 38rem; height: auto;
}
#overview th { white-space: normal; min-width: 5.5rem; vertical-align: bottom; }
#overview :is(th, td):first-child {
  position: sticky; left: 0; background: var(--card);
}
#overview th:first-child { z-index: 1; }
.grid .paper { fill: none; }
.ink { fill: var(--ink); }
.grid .idle { fill: var(--idle); }
.line { stroke: var(--ink); }
.legend .pair { stroke: var(--ink); }
.bar { fill: var(--accent); }
.bars { display: block; width: 100%; max-width: 64rem; height: auto; }
.alert { background: var(--alert); border-color: var(--alert-rule); }
.bad { font-weight: 650; color: var(--bad); }
.alert ul { margin: 0; padding-left: 1.2rem; }
.words { display: grid; grid-template-columns: auto 1fr; gap: .35rem 1.2rem; }
.words dt { font-weight: 600; }
.words dd { margin: 0; max-width: 75ch; }
footer { color: var(--quiet); font-size: .9rem; }
@media (max-width: 40rem) {
  .words { grid-template-columns: 1fr; gap: 0; }
  .words dd { margin-bottom: .6rem; }
  th, td { padding: .3rem .5rem; }
}
@media print { .scroll { overflow: visible; max-height: none; } }
)css";

void AppendCells(const std::vector<std::string>& cells, size_t text_columns,
                 absl::string_view tag, absl::string_view link,
                 std::string* out) {
  absl::StrAppend(out, "<tr>");
  for (size_t column = 0; column < cells.size(); ++column) {
    std::string content = EscapeXml(cells[column]);
    if (column == 0 && !link.empty()) {
      content =
          absl::StrCat("<a href=\"", EscapeXml(link), "\">", content, "</a>");
    }
    absl::StrAppend(out, "<", tag,
                    column < text_columns ? " class=\"word\">" : ">", content,
                    "</", tag, ">");
  }
  absl::StrAppend(out, "</tr>\n");
}

}  // namespace

absl::string_view PageStyle() { return kStyle; }

std::string SectionHtml(absl::string_view id, absl::string_view heading,
                        absl::string_view content) {
  return absl::StrCat("<section id=\"", id, "\">\n<h2>", EscapeXml(heading),
                      "</h2>\n", content, "</section>\n");
}

std::string PageHtml(absl::string_view title, absl::string_view body) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>",
      EscapeXml(title), " – Pipewright</title>\n<style>", PageStyle(),
      "</style>\n</head>\n<body>\n", body, "<footer>Pipewright ",
      PIPEWRIGHT_VERSION, "</footer>\n</body>\n</html>\n");
}

std::string TableHtml(const HtmlTable& table, size_t limit) {
  std::string out =
      "<div class=\"scroll table\" tabindex=\"0\"><table>\n<thead>";
  AppendCells(table.header, table.text_columns, "th", "", &out);
  absl::StrAppend(&out, "</thead>\n<tbody>\n");
  const size_t count = table.rows.size();
  for (size_t row = 0; row < count; ++row) {
    if (count > limit && row == limit / 2) {
      row = count - limit / 2;
      absl::StrAppend(&out, "<tr><td class=\"word\" colspan=\"",
                      table.header.size(), "\">… ", count - limit / 2 * 2,
                      " more</td></tr>\n");
    }
    AppendCells(table.rows[row], table.text_columns, "td",
                row < table.links.size() ? table.links[row] : "", &out);
  }
  return absl::StrCat(out, "</tbody>\n</table></div>\n");
}

std::string BarChartSvg(const std::vector<double>& values,
                        absl::string_view name, absl::string_view bar_name) {
  constexpr double kWidth = 960;
  constexpr double kTop = 22;      // room for values
  constexpr double kHeight = 140;  // of the largest bar
  constexpr double kWidestSlot = 72;
  constexpr double kLabelPx = 30;
  double largest = 0;
  for (const double value : values) largest = std::max(largest, value);
  const double count = std::max<double>(1, values.size());
  const double slot = std::min(kWidestSlot, kWidth / count);
  const double width = slot * count;
  size_t label_every = 1;
  while (slot * label_every < kLabelPx) label_every *= 2;

  std::string out =
      absl::StrCat("<svg class=\"bars\" viewBox=\"0 0 ", Px(width), " ",
                   Px(kTop + kHeight + 22), "\" style=\"max-width:", Px(width),
                   "px\" font-size=\"12\" text-anchor=\"middle\" role=\"img\" "
                   "aria-label=\"",
                   EscapeXml(name), "\">\n");
  for (size_t index = 0; index < values.size(); ++index) {
    const double height = largest > 0 ? kHeight * values[index] / largest : 0;
    const double top = kTop + kHeight - height;
    const std::string value = absl::StrFormat("%.4g", values[index]);
    const std::string middle = Px(slot * (index + 0.5));
    absl::StrAppend(&out, "<rect class=\"bar\"",
                    RectShape(slot * (index + 0.1), top, slot * 0.8, height),
                    "><title>", EscapeXml(bar_name), " ", index, ": ", value,
                    "</title></rect>\n");
    if (index % label_every != 0) continue;
    absl::StrAppend(&out, "<text class=\"ink\" x=\"", middle, "\" y=\"",
                    Px(kTop + kHeight + 16), "\">", index, "</text>\n");
    if (label_every > 1) continue;
    absl::StrAppend(&out, "<text class=\"ink\" x=\"", middle, "\" y=\"",
                    Px(top - 5), "\">", value, "</text>\n");
  }
  return absl::StrCat(out, "<path class=\"line\" d=\"M0 ", Px(kTop + kHeight),
                      "h", Px(width), "\"/>\n</svg>\n");
}

}  // namespace pipewright
