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

namespace {

constexpr size_t kMaxOpRows = 200;

}  // namespace

std::string ThroughputCard(const Throughput& throughput) {
  std::string rows = absl::StrFormat("<dt>tokens per s</dt><dd>%.6g</dd>",
                                     throughput.tokens_per_s);
  const auto add = [&rows](absl::string_view name, const std::string& value) {
    absl::StrAppend(&rows, "<dt>", name, "</dt><dd>", value, "</dd>");
  };
  if (const auto tflops = throughput.tflops_per_device()) {
    add("TFLOP/s a device", absl::StrFormat("%.1f", *tflops));
  }
  if (const auto mfu = throughput.mfu()) add("MFU", FormatPercent(*mfu));
  if (const auto hfu = throughput.hfu()) {
    add("with what is recomputed", FormatPercent(*hfu));
  }
  if (const auto cost = throughput.cost_per_1e9_tokens()) {
    add("cost of 1e9 tokens", absl::StrFormat("%.2f", *cost));
  }
  std::string note;
  if (throughput.flops) {
    note = absl::StrCat(
        "<p class=\"quiet\">",
        throughput.peak ? absl::StrCat("Of ", throughput.peak->name, ". ") : "",
        "Model FLOPs: ", throughput.FlopsFormula(), ".</p>");
  }
  return absl::StrCat("<div class=\"card\"><h3>Throughput</h3><dl>", rows,
                      "</dl>", note, "</div>\n");
}

std::string CostSection(const CostReport& report) {
  std::vector<OpCost> ops = report.ops;
  std::stable_sort(ops.begin(), ops.end(),
                   [](const OpCost& one, const OpCost& other) {
                     return one.share > other.share;
                   });
  HtmlTable table;
  table.text_columns = 3;
  table.header = {"operation", "block",   "pass",          "GFLOP", "HBM bytes",
                  "computing", "TFLOP/s", "communication", "share"};
  for (const OpCost& row : ops) {
    table.rows.push_back(
        {row.op, absl::StrCat(row.block, " × ", row.blocks), row.pass,
         absl::StrFormat("%.1f", row.flops / 1e9), FormatBytes(row.bytes),
         FormatSeconds(row.seconds),
         row.seconds > 0
             ? absl::StrFormat("%.1f", row.flops / row.seconds / 1e12)
             : "",
         FormatSeconds(row.comm_seconds), FormatPercent(row.share)});
  }
  return SectionHtml(
      "costs", "Estimated times of operations",
      absl::StrCat("<p class=\"quiet\">One slice of a microbatch on one ",
                   EscapeXml(report.device.name),
                   ". Share: of F, B and W of all blocks of the model, "
                   "nothing recomputed. Optimizer step: ",
                   FormatSeconds(report.optimizer_s), ".</p>\n",
                   TableHtml(table, kMaxOpRows)));
}

}  // namespace pipewright
