#include "sim/report/cost_html.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"

namespace pipewright {
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
