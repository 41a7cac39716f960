#include "sim/report/html_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/check.h"
#include "sim/base/version.h"
#include "sim/report/format.h"
#include "sim/report/svg_parts.h"

namespace pipewright {

const std::vector<std::pair<std::string, std::string>>& EmbeddedWeb();

namespace {

// Scripts in the order in which they need each other.
constexpr const char* kScripts[] = {"data",     "axis",   "rows",    "paint",
                                    "timeline", "memory", "replay",  "whatif",
                                    "tables",   "points", "scatter", "main"};

// Null where it is not there: files of uPlot (cmake/charts.cmake).
const std::string* FindWebFile(absl::string_view name) {
  for (const auto& [file, content] : EmbeddedWeb()) {
    if (file == name) return &content;
  }
  return nullptr;
}

const std::string& WebFile(absl::string_view name) {
  const std::string* const file = FindWebFile(name);
  PW_CHECK(file != nullptr);
  return *file;
}

// The library with its licence, which has to go with it.
std::string ChartScript() {
  if (ChartLibrary().empty()) return "";
  return absl::StrCat("<style>", WebFile("uplot-style"),
                      "</style>\n<script id=\"uplot\">\n/*\n",
                      WebFile("uplot-licence"), "*/\n", WebFile("uplot"),
                      "</script>\n");
}

std::string PageScript() {
  std::string out;
  for (const char* name : kScripts) out += WebFile(name);
  return out;
}

std::string WholePage(absl::string_view title, absl::string_view body,
                      absl::string_view data, absl::string_view charts) {
  return absl::StrCat(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, "
      "initial-scale=1\">\n<link rel=\"icon\" href=\"data:,\">\n<title>",
      EscapeXml(title), " – Pipewright</title>\n<style>", PageStyle(),
      "</style>\n</head>\n<body>\n", body, "<footer>Pipewright ",
      kVersion, "</footer>\n", data, charts, "<script>\n",
      PageScript(), "</script>\n</body>\n</html>\n");
}

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

std::string DefinitionsHtml(const HtmlWords& words, absl::string_view css) {
  std::string out = absl::StrCat("<dl", css, ">\n");
  for (const auto& [word, meaning] : words) {
    absl::StrAppend(&out, "<dt>", EscapeXml(word), "</dt><dd>",
                    EscapeXml(meaning), "</dd>\n");
  }
  return absl::StrCat(out, "</dl>\n");
}

// "" without a text.
std::string Paragraph(absl::string_view css, absl::string_view text) {
  return text.empty() ? ""
                      : absl::StrCat("<p class=\"", css, "\">", EscapeXml(text),
                                     "</p>\n");
}

}  // namespace

absl::string_view PageStyle() { return WebFile("page"); }

std::string SectionHtml(absl::string_view id, absl::string_view heading,
                        absl::string_view content, absl::string_view shown) {
  return absl::StrCat("<section id=\"", id, shown.empty() ? "" : "\" class=\"",
                      shown, "\">\n<h2>", EscapeXml(heading), "</h2>\n",
                      content, "</section>\n");
}

std::string HeaderHtml(absl::string_view title, absl::string_view quiet) {
  return absl::StrCat("<header>\n<h1>", EscapeXml(title), "</h1>\n",
                      Paragraph("quiet", quiet), "</header>\n");
}

std::string PictureHtml(absl::string_view svg, absl::string_view shown) {
  return absl::StrCat("<div class=\"grid scroll", shown.empty() ? "" : " ",
                      shown, "\" tabindex=\"0\">\n", svg, "</div>\n");
}

std::string PlainHtml(absl::string_view text) {
  std::vector<std::string> lines;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    lines.push_back(EscapeXml(line));  // which takes no line's end
  }
  return absl::StrCat("<pre>", absl::StrJoin(lines, "\n"), "</pre>\n");
}

std::string ListHtml(const std::vector<std::string>& texts) {
  std::string out = "<ul>\n";
  for (const std::string& text : texts) {
    absl::StrAppend(&out, "<li>", EscapeXml(text), "</li>\n");
  }
  return absl::StrCat(out, "</ul>\n");
}

std::string WarningsHtml(const std::vector<std::string>& texts,
                         absl::string_view heading) {
  if (texts.empty()) return "";
  return absl::StrCat("<section class=\"alert\" id=\"warnings\">\n<h2>",
                      heading, "</h2>\n", ListHtml(texts), "</section>\n");
}

std::string WordsHtml(const HtmlWords& words) {
  return DefinitionsHtml(words, " class=\"words\"");
}

std::string CardHtml(const HtmlCard& card) {
  std::string out =
      absl::StrCat("<div class=\"card\"><h3>", EscapeXml(card.heading),
                   "</h3>\n", Paragraph("figure", card.figure));
  if (!card.values.empty()) out += DefinitionsHtml(card.values, "");
  for (const std::string& note : card.notes) out += Paragraph("quiet", note);
  return absl::StrCat(out, "</div>\n");
}

std::string PageHtml(absl::string_view title, absl::string_view body,
                     absl::string_view data) {
  return WholePage(title, body, data, "");
}

std::string ChartPageHtml(absl::string_view title, absl::string_view body,
                          absl::string_view data) {
  return WholePage(title, body, data, ChartScript());
}

std::string ChartLibrary() {
  const std::string* const version = FindWebFile("uplot-version");
  return version == nullptr ? "" : absl::StrCat("uPlot ", *version);
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
  constexpr double kHeight = 140;  // height of the largest bar
  constexpr double kWidestSlot = 72;
  constexpr double kLabelPx = 30;
  double largest = 0;
  for (const double value : values) largest = std::max(largest, value);
  const double count = std::max<double>(1, values.size());
  const double slot = std::min(kWidestSlot, kWidth / count);
  const double width = slot * count;
  size_t label_every = 1;
  while (slot * label_every < kLabelPx) label_every *= 2;

  Svg svg;
  svg.Open("text-anchor=\"middle\"");
  for (size_t index = 0; index < values.size(); ++index) {
    const double height = largest > 0 ? kHeight * values[index] / largest : 0;
    const double top = kTop + kHeight - height;
    const std::string value = absl::StrFormat("%.4g", values[index]);
    const double middle = slot * (index + 0.5);
    svg.Rect(slot * (index + 0.1), top, slot * 0.8, height,
             {.css = "bar",
              .title = absl::StrCat(bar_name, " ", index, ": ", value)});
    if (index % label_every != 0) continue;
    svg.Text(middle, kTop + kHeight + 16, absl::StrCat(index));
    if (label_every == 1) svg.Text(middle, top - 5, value);
  }
  svg.Close();
  svg.Path(PathOf({"M", 0.0, kTop + kHeight, "h", width}),
           {.css = "line", .stroke = kInk});
  return svg.FinishWith(
      absl::StrCat("class=\"bars\" style=\"max-width:", Px(width), "px\""),
      width, kTop + kHeight + 22, name);
}

}  // namespace pipewright
