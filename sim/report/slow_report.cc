#include "sim/report/slow_report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"

namespace pipewright {
namespace {

std::string RowName(const SlowReport::Row& row) {
  if (row.rank < 0) return row.name;
  const std::string place =
      absl::StrCat("rank ", row.rank, " of replica ", row.replica);
  // Without a system the name says no more.
  return row.name.rfind("replica", 0) == 0
             ? place
             : absl::StrCat(place, " (", row.name, ")");
}

std::string PartLine(absl::string_view what, const SlowReport::Part& part) {
  std::string note = absl::StrCat("of ", part.all);
  if (part.faster > 0) absl::StrAppend(&note, ", ", part.faster, " faster");
  if (!part.slowest.empty()) {
    const SlowReport::Row& worst = part.slowest.front();
    absl::StrAppend(&note, "; slowest: ", RowName(worst), ", ",
                    absl::StrFormat("%.4g", worst.factor), " times as long");
  }
  if (!part.law.empty()) {
    absl::StrAppend(&note, " (", part.law, ", seed ", part.seed, ")");
  }
  return ReportLine(what, absl::StrCat(part.slower), note);
}

Json PartToJson(const SlowReport::Part& part) {
  Json rows = Json::array();
  for (const SlowReport::Row& row : part.slowest) {
    rows.push_back({{"name", row.name}, {"factor", row.factor}});
    if (row.rank < 0) continue;
    rows.back()["replica"] = row.replica;
    rows.back()["rank"] = row.rank;
  }
  return {{"law", part.law},       {"seed", part.seed},
          {"all", part.all},       {"slower", part.slower},
          {"faster", part.faster}, {"slowest", std::move(rows)}};
}

}  // namespace

std::string SlowToText(const SlowReport& report) {
  return absl::StrCat(
      report.devices ? PartLine("slow devices", *report.devices) : "",
      report.links ? PartLine("slow links", *report.links) : "");
}

Json SlowToJson(const SlowReport& report) {
  Json out;
  if (report.devices) out["devices"] = PartToJson(*report.devices);
  if (report.links) out["links"] = PartToJson(*report.links);
  return out;
}

std::string SlowToHtml(const SlowReport& report) {
  HtmlTable table;
  table.text_columns = 2;
  table.header = {"", "which", "times as long"};
  for (const auto& [what, part] : {std::pair("device", &report.devices),
                                   std::pair("link", &report.links)}) {
    if (!*part) continue;
    for (const SlowReport::Row& row : (*part)->slowest) {
      table.rows.push_back(
          {what, RowName(row), absl::StrFormat("%.4g", row.factor)});
    }
  }
  return SectionHtml("slow", "Slow devices and links",
                     absl::StrCat(PlainHtml(SlowToText(report)),
                                  TableHtml(table, SlowReport::kRows)));
}

}  // namespace pipewright
