#include "sim/cli/diagnose_page.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"
#include "sim/diagnose/diagnosis.h"
#include "sim/plot/heat_map.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"

namespace pipewright {
namespace {

constexpr size_t kMostPageRows = 256;
// A picture with more cells is longer than a page is of use.
constexpr size_t kMostTimelineRows = 64;

std::string Picture(const std::string& svg) {
  return absl::StrCat("<div class=\"grid scroll\" tabindex=\"0\">\n", svg,
                      "</div>\n");
}

std::string WhatIfPage(const std::string& head,
                       const std::vector<JobWhatIf>& list, bool gaps) {
  HtmlTable table;
  table.header = {head, "keep", "faster if ideal"};
  if (gaps) table.header.push_back("gaps");
  for (const JobWhatIf& what : list) {
    table.rows.push_back(
        {what.name, absl::StrFormat("%.4f", what.slowdown_keep),
         absl::StrFormat("%+.2f %%", 100 * (what.speedup_fix - 1))});
    if (gaps) {
      table.rows.back().push_back(
          absl::StrFormat("%+.3f ms", 1e3 * what.gap_s));
    }
  }
  return TableHtml(table, kMostPageRows);
}

std::string StepTable(const Diagnosis& diagnosis) {
  HtmlTable table;
  table.header = {"step", "recorded", "without gaps", "gap error"};
  for (const StepAnswer& step : diagnosis.steps) {
    table.rows.push_back({absl::StrCat(step.step),
                          FormatSeconds(step.recorded_s),
                          FormatSeconds(step.no_gap_s),
                          absl::StrFormat("%+.2f %%", 100 * step.gap_error)});
  }
  return TableHtml(table, kMostPageRows);
}

std::string Answers(const Diagnosis& diagnosis) {
  HtmlTable table;
  table.header = {"step", "time"};
  table.rows = {
      {"recorded", FormatSeconds(diagnosis.recorded_s)},
      {"re-created without gaps", FormatSeconds(diagnosis.no_gap_s)},
      {"gap error", absl::StrFormat("%+.2f %%", 100 * diagnosis.gap_error)},
      {"ideal", FormatSeconds(diagnosis.ideal_s)},
      {"slowdown by stragglers",
       absl::StrFormat("%.4f", diagnosis.straggler_slowdown)}};
  return TableHtml(table, kMostPageRows);
}

}  // namespace

std::string WorkerHeatMap(const MeasuredJob& job, const Diagnosis& diagnosis) {
  HeatMap map;
  map.title = "slowdown by each worker alone";
  map.row_name = "replica";
  map.column_name = job.place;
  map.value_name = "step with only this worker's own times, over the ideal";
  map.columns = static_cast<size_t>(job.pp);
  map.from = 1;
  for (const JobWhatIf& worker : diagnosis.workers) {
    map.values.push_back(worker.slowdown_keep);
  }
  return HeatMapSvg(map);
}

std::string DiagnosisHtml(const MeasuredJob& job, const Diagnosis& diagnosis) {
  const std::string title = absl::StrCat("Diagnosis of ", job.source);
  std::string body = absl::StrCat(
      "<header>\n<h1>", EscapeXml(title), "</h1>\n<p>", job.pp, " ", job.place,
      "s, ", job.dp, " replicas, ", job.num_steps(), " steps of ",
      job.num_ops(), " operations</p>\n</header>\n",
      SectionHtml("answers", "Step", Answers(diagnosis)),
      SectionHtml("workers", "Workers",
                  absl::StrCat(Picture(WorkerHeatMap(job, diagnosis)),
                               WhatIfPage("worker", diagnosis.workers, false))),
      SectionHtml("kinds", "Kinds of operations",
                  WhatIfPage("kind", diagnosis.kinds, true)),
      SectionHtml(
          "places", "Places",
          absl::StrCat(WhatIfPage(job.place, diagnosis.stages, false),
                       WhatIfPage("replica", diagnosis.replicas, false))));
  if (static_cast<size_t>(job.pp) <= kMostTimelineRows) {
    absl::StrAppend(
        &body, SectionHtml("timeline", "Timeline",
                           Picture(TimelineSvg(job, diagnosis,
                                               SlowestReplica(diagnosis)))));
  }
  absl::StrAppend(&body, SectionHtml("steps", "Steps", StepTable(diagnosis)));
  return PageHtml(title, body);
}

}  // namespace pipewright
