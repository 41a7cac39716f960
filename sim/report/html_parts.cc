#include "sim/report/html_parts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/check.h"
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
      PIPEWRIGHT_VERSION, "</footer>\n", data, charts, "<script>\n",
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

}  // namespace

absl::string_view PageStyle() { return WebFile("page"); }

std::string SectionHtml(absl::string_view id, absl::string_view heading,
                        absl::string_view content, absl::string_view shown) {
  return absl::StrCat("<section id=\"", id, shown.empty() ? "" : "\" class=\"",
                      shown, "\">\n<h2>", EscapeXml(heading), "</h2>\n",
                      content, "</section>\n");
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
