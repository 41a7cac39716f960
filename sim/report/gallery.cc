#include "sim/report/gallery.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/quantity.h"
#include "sim/program/program.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"
#include "sim/report/page_data.h"
#include "sim/report/run_data.h"
#include "sim/report/svg.h"

namespace pipewright {
namespace {

constexpr size_t kMaxGalleryRows = 1000;
// All static pictures have one width, so that equal lengths are equal times; it
// fits a landscape page of paper. The script's timelines zoom.
constexpr double kPageWidth = 1060;
constexpr double kRowPx = 22;

using Entries = std::vector<const GalleryEntry*>;

double Largest(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

// Those that were built, the fastest first: bubbles of a first iteration and of
// schedules that do other work do not say which one that is.
Entries Sorted(const Gallery& gallery) {
  Entries drawn;
  for (const GalleryEntry& entry : gallery.entries) {
    if (entry.refusal.empty()) drawn.push_back(&entry);
  }
  const auto rank = [](const GalleryEntry* entry) {
    return std::tuple(entry->report.iteration_s,
                      entry->report.bubble_fraction.per_rank,
                      Largest(entry->report.peak_activations), entry->name);
  };
  std::sort(drawn.begin(), drawn.end(),
            [&](const GalleryEntry* one, const GalleryEntry* other) {
              return rank(one) < rank(other);
            });
  return drawn;
}

// Their first iteration is no measure of them.
std::string NeverFlushed(const Entries& drawn) {
  std::vector<std::string> names;
  for (const GalleryEntry* entry : drawn) {
    const Schedule* schedule = entry->program->schedule.get();
    if (schedule != nullptr && schedule->update_every > 0) {
      names.push_back(EscapeXml(entry->name));
    }
  }
  if (names.empty()) return "";
  return absl::StrCat(
      "<p class=\"quiet\">Never flushed: ", absl::StrJoin(names, ", "),
      ". Their bubbles and spans are those of the first "
      "iteration, fill included; compare iterations.</p>\n");
}

std::string Overview(const Entries& drawn) {
  double longest_s = 0;
  for (const GalleryEntry* entry : drawn) {
    longest_s = std::max(longest_s, entry->report.span_s.global);
  }
  const TimeUnit unit = UnitFor(longest_s / 10);
  HtmlTable table;
  table.header = {"schedule",
                  "vpp",
                  "slices",
                  absl::StrFormat("span (%s)", unit.name),
                  absl::StrFormat("iteration (%s)", unit.name),
                  "bubble fraction, global",
                  "per rank",
                  "bubble overhead, global",
                  "per rank",
                  "peak activations",
                  "weights"};
  const auto time = [&](double seconds) {
    return absl::StrFormat("%.3f", seconds / unit.seconds);
  };
  for (const GalleryEntry* entry : drawn) {
    const Report& report = entry->report;
    const Schedule* schedule = entry->program->schedule.get();
    table.rows.push_back(
        {entry->name, absl::StrCat(report.vpp), absl::StrCat(report.slices),
         time(report.span_s.global), time(report.iteration_s),
         FormatPercent(report.bubble_fraction.global),
         FormatPercent(report.bubble_fraction.per_rank),
         FormatPercent(report.bubble_overhead.global),
         FormatPercent(report.bubble_overhead.per_rank),
         absl::StrFormat("%.4g", Largest(report.peak_activations)),
         absl::StrCat(schedule == nullptr ? 1 : schedule->directions, "×")});
    table.links.push_back(absl::StrCat("#schedule-", entry->name));
  }
  return SectionHtml(
      "overview", "Overview",
      absl::StrCat(
          "<p class=\"quiet\">Shortest iteration first. Bubble fraction is "
          "(span − busy) / span, bubble overhead (span − busy) / busy; global: "
          "first start on any rank to last end on any, per rank: the longest "
          "of the ranks' own spans. Iteration: the steady-state period. Peak "
          "activations: of the fullest rank, in microbatches through all its "
          "stages of one direction. Weights: copies of each stage.</p>\n",
          NeverFlushed(drawn), TableHtml(table, kMaxGalleryRows)));
}

std::string Refused(const Gallery& gallery) {
  HtmlTable table;
  table.text_columns = 2;
  table.header = {"schedule", "why"};
  for (const GalleryEntry& entry : gallery.entries) {
    if (!entry.refusal.empty()) {
      table.rows.push_back({entry.name, entry.refusal});
    }
  }
  if (table.rows.empty()) return "";
  return SectionHtml("refused", "Not possible with these sizes",
                     TableHtml(table, kMaxGalleryRows));
}

std::string Pictures(const Entries& drawn) {
  GridOptions options;
  options.width_px = kPageWidth;
  options.row_px = kRowPx;
  for (const GalleryEntry* entry : drawn) {
    for (const TraceOp& op : entry->ops) {
      options.end_s = std::max(options.end_s, op.end_s);
    }
  }
  std::string out;
  int number = 0;
  for (const GalleryEntry* entry : drawn) {
    const Report& report = entry->report;
    options.suffix = absl::StrCat("-", entry->name);
    options.title = entry->name;
    absl::StrAppend(
        &out,
        SectionHtml(
            absl::StrCat("schedule-", entry->name), entry->name,
            absl::StrCat(
                "<p>", EscapeXml(entry->summary), "</p>\n<p class=\"quiet\">",
                EscapeXml(entry->source), "</p>\n<p>Span ",
                FormatSeconds(report.span_s.global), ", bubble fraction ",
                FormatPercent(report.bubble_fraction.global), " global and ",
                FormatPercent(report.bubble_fraction.per_rank),
                " per rank, peak activations ",
                absl::StrFormat("%.4g", Largest(report.peak_activations)),
                "</p>\n<div id=\"timeline-", number++,
                "\" class=\"live-only\"></div>\n",
                PictureHtml(
                    ScheduleGridSvg(*entry->program, entry->ops, options),
                    kShownStatic))));
  }
  return out;
}

std::string Charts(const Gallery& gallery) {
  constexpr char kHeading[] = "Time against memory";
  std::string out =
      SectionHtml("trade", kHeading,
                  "<div id=\"scatter\" class=\"charts\"></div>\n", kShownLive);
  if (gallery.figures.empty()) return out;
  std::string figures;
  for (const std::string& svg : gallery.figures) figures += PictureHtml(svg);
  return out + SectionHtml("trade-figure", kHeading, figures, kShownNoCharts);
}

// One set of tools moves all timelines.
std::string Tools() {
  return "<section id=\"tools\" class=\"live-only\">\n<div "
         "id=\"timeline-tools\"></div>\n</section>\n";
}

std::string Data(const Entries& drawn) {
  if (drawn.empty()) return "";
  PageData data;
  AddPageWords(&data);
  Json& runs = data.json()["runs"];
  runs = Json::array();
  Json names = Json::array();
  std::vector<double> iteration;
  std::vector<double> per_rank;
  std::vector<double> global;
  std::vector<double> peak;
  for (const GalleryEntry* entry : drawn) {
    const Report& report = entry->report;
    runs.push_back(RunJson(report, *entry->program, entry->ops,
                           {.name = entry->name}, nullptr, &data));
    names.push_back(entry->name);
    iteration.push_back(report.iteration_s);
    per_rank.push_back(report.bubble_fraction.per_rank);
    global.push_back(report.bubble_fraction.global);
    peak.push_back(Largest(report.peak_activations));
  }
  Json columns = Json::array();
  const auto add = [&](const char* name, const std::vector<double>& values) {
    columns.push_back({{"name", name}, {"values", data.Add(values)}});
  };
  add("iteration_s", iteration);
  add("bubble_fraction.per_rank", per_rank);
  add("bubble_fraction.global", global);
  add(kGalleryX, peak);
  Json charts = Json::array();
  for (const char* y : kGalleryCharts) {
    charts.push_back(Json::array({kGalleryX, y}));
  }
  data.json()["points"] = {{"count", drawn.size()},
                           {"front", true},
                           {"columns", std::move(columns)},
                           {"names", std::move(names)},
                           {"charts", std::move(charts)}};
  return data.Elements();
}

}  // namespace

std::string GalleryHtml(const Gallery& gallery) {
  const Entries drawn = Sorted(gallery);
  const TimesInUnits units(!drawn.empty() && drawn[0]->report.in_units);
  std::string body =
      absl::StrCat(HeaderHtml("Schedules on the same axes",
                              absl::StrJoin(gallery.facts, " · ")),
                   WarningsHtml(gallery.warnings), Overview(drawn));
  if (!drawn.empty()) absl::StrAppend(&body, Charts(gallery), Tools());
  absl::StrAppend(&body, Pictures(drawn), Refused(gallery));
  return ChartPageHtml("Schedules", body, Data(drawn));
}

}  // namespace pipewright
