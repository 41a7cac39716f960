#include "sim/report/html_sections.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/program/program.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"
#include "sim/report/memory_svg.h"
#include "sim/report/svg.h"

namespace pipewright {
namespace {

constexpr size_t kMostMemoryRows = 256;
constexpr size_t kMostChangeRows = 64;
// Fits a landscape page of paper with numbers that can be read.
constexpr double kStaticWidth = 1060;

}  // namespace

std::string RunPage::PictureTitle() const {
  std::string title =
      absl::StrFormat("%s, iteration %d", report.schedule, iteration);
  if (report.dp > 1) {
    absl::StrAppend(&title, ", data-parallel replica ", replica);
    if (report.dp_classes) {
      absl::StrAppend(&title, " of class ", program.ClassOf(replica),
                      ", the slowest");
    }
  }
  return title;
}

int RunPage::MemoryReplica() const {
  return report.dp_classes
             ? program.FirstReplicas()[report.dp_classes->hungriest]
             : replica;
}

std::string TimelineSection(const RunPage& page) {
  if (page.ops.empty()) return "";
  std::string sliders;
  if (page.extras != nullptr && page.extras->replay) {
    sliders =
        "<details id=\"what-if\"><summary>Other times</summary>\n<div "
        "id=\"what-if-panel\"></div></details>\n";
  } else if (page.extras != nullptr && !page.extras->no_replay.empty()) {
    sliders = absl::StrCat(
        "<p class=\"quiet\" id=\"no-sliders\">No sliders "
        "for other times: ",
        EscapeXml(page.extras->no_replay), ".</p>\n");
  }
  return SectionHtml(
      "timeline", "Timeline",
      absl::StrCat("<p class=\"quiet\">", EscapeXml(page.PictureTitle()),
                   "</p>\n<div id=\"timeline-tools\"></div>\n<div "
                   "id=\"timeline-0\"></div>\n<div "
                   "id=\"memory-chart\"></div>\n",
                   sliders),
      kShownLive);
}

std::string TimelineData(const RunPage& page) {
  if (page.ops.empty()) return "";
  PageData data;
  AddPageWords(&data);
  data.json()["runs"] = Json::array();
  data.json()["runs"].push_back(
      RunJson(page.report, page.program, page.ops,
              {.name = page.report.schedule,
               .replica = page.replica,
               .iteration = page.iteration,
               .memory_replica = page.MemoryReplica()},
              page.extras, &data));
  return data.Elements();
}

std::string GridSection(const RunPage& page) {
  GridOptions options;
  options.replica = page.replica;
  options.iteration = page.iteration;
  options.width_px = kStaticWidth;
  options.title = page.PictureTitle();
  return SectionHtml(
      "grid", "Schedule",
      absl::StrCat("<div class=\"grid scroll\" tabindex=\"0\">\n",
                   ScheduleGridSvg(page.program, page.ops, options),
                   "</div>\n"),
      kShownStatic);
}

std::string MemoryBytesSection(const RunPage& page) {
  if (!page.report.memory) return "";
  const MemoryReport& report = *page.report.memory;
  const RankMemory& worst = report.memory->ranks[report.memory->WorstRank()];
  std::string body;
  const std::string verdict = MemoryVerdictLine(report);
  if (!verdict.empty()) {
    absl::StrAppend(&body, "<p", report.fits() ? "" : " class=\"bad\"", ">",
                    EscapeXml(verdict), ".</p>\n");
  }
  absl::StrAppend(
      &body, "<p class=\"quiet\">Beyond the allocator's figures: context ",
      FormatBytes(static_cast<double>(worst.context)), ", fragmentation ",
      worst.fragmentation == 0
          ? "none assumed"
          : FormatBytes(static_cast<double>(worst.fragmentation)),
      ".</p>\n");
  if (!report.changes.empty()) {
    HtmlTable changes;
    changes.header = {"what would help most", "saves", "then needs",
                      "enough alone"};
    for (const MemoryChange& change : report.changes) {
      changes.rows.push_back({change.change, FormatBytes(change.saved_bytes),
                              FormatBytes(change.needed_bytes),
                              change.fits ? "yes" : "no"});
    }
    body += TableHtml(changes, kMostChangeRows);
  }
  if (page.program.schedule != nullptr && !page.ops.empty()) {
    MemoryPicture picture;
    picture.replica = page.MemoryReplica();
    picture.iteration = page.iteration;
    picture.limit_bytes = report.allocator_limit();
    absl::StrAppend(
        &body,
        "<div class=\"static\">\n<p class=\"quiet\">Over the time of the "
        "iteration that "
        "is drawn; a pass stands at its highest point",
        picture.limit_bytes ? ", the dashed line at what is left "
                              "of the device's memory"
                            : "",
        ".</p>\n<div class=\"grid scroll\" tabindex=\"0\">\n",
        MemoryOverTimeSvg(page.program, *report.memory, page.ops, picture),
        "</div>\n</div>\n");
  }
  const MemoryTable table = MemoryTableOf(report);
  HtmlTable html;
  html.header = table.header;
  html.rows = table.rows;
  // Where the peak is stands next to the rank.
  html.text_columns = 2;
  const auto reorder = [](std::vector<std::string>& cells) {
    std::rotate(cells.begin() + 1, cells.end() - 1, cells.end());
  };
  reorder(html.header);
  for (std::vector<std::string>& row : html.rows) reorder(row);
  absl::StrAppend(&body,
                  "<p class=\"quiet\">At the peak of each rank, in "
                  "GiB.</p>\n",
                  TableHtml(html, kMostMemoryRows));
  return SectionHtml("memory-bytes", "Memory", body);
}

}  // namespace pipewright
