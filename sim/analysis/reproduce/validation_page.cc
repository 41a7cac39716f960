#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "sim/analysis/reproduce/validation.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"

namespace pipewright {
namespace {

constexpr double kBytesOfGiB = 1024.0 * 1024 * 1024;

// One heading of the page with what stands below it.
struct PagePart {
  std::string heading;
  std::string id;
  std::vector<std::string> paragraphs;
  HtmlTable table;
};

std::string Percent(double part) {
  return absl::StrFormat("%+.1f %%", 100 * part);
}

std::string Size(double part) { return absl::StrFormat("%.1f %%", 100 * part); }

// "6 %, worst 15 %".
std::string GoalText(const StepGoal& goal) {
  std::string text = absl::StrFormat("%.0f %%", 100 * goal.mean);
  if (goal.worst > 0) {
    absl::StrAppendFormat(&text, ", worst %.0f %%", 100 * goal.worst);
  }
  return text;
}

PagePart KindsPart(const StepSummary& summary) {
  PagePart part = {
      "Steps by kind",
      "kinds",
      {"An error is estimated over measured time, minus 1: below 0 the "
       "estimate is too fast. Goals are those of the project, not claims.",
       absl::StrCat(summary.counted, " steps count, ", summary.refused,
                    " more would but cannot be expressed, ", summary.excluded,
                    " are shown and do not count. ", summary.do_not_fit,
                    " of those that count are said not to fit into memory, "
                    "though they ran.")},
      {.header = {"Kind", "Worst step", "Steps", "Mean", "Mean of sizes",
                  "Worst", "Goal", "Reached"},
       .text_columns = 2}};
  for (size_t index = 0; index < summary.kinds.size(); ++index) {
    const KindSummary& kind = summary.kinds[index];
    const StepGoal& goal = StepGoals()[index];
    if (kind.rows == 0) {
      part.table.rows.push_back(
          {kind.kind, "", "0", "-", "-", "-", GoalText(goal), "-"});
      continue;
    }
    const bool reached =
        kind.absolute <= goal.mean &&
        (goal.worst <= 0 || std::abs(kind.worst) <= goal.worst);
    part.table.rows.push_back({kind.kind, kind.worst_row,
                               absl::StrCat(kind.rows), Percent(kind.mean),
                               Size(kind.absolute), Percent(kind.worst),
                               GoalText(goal), reached ? "yes" : "no"});
  }
  return part;
}

PagePart OrdersPart(const StepSummary& summary) {
  PagePart part = {
      "Order",
      "order",
      {absl::StrCat("Kendall's tau (1: same order, -1: reversed) of steps of "
                    "one model, device, number of devices and global batch. ",
                    summary.orders.empty()
                        ? "No group has five steps; smaller ones tell little."
                        : "Groups of five steps and more stand first; the goal "
                          "of 0.9 is theirs.")},
      {.header = {"Group", "Steps", "Pairs", "Tau"}}};
  for (const auto* list : {&summary.orders, &summary.small_orders}) {
    for (const OrderSummary& order : *list) {
      part.table.rows.push_back(
          {order.group, absl::StrCat(order.rows), absl::StrCat(order.pairs),
           order.pairs > 0 ? absl::StrFormat("%.2f", order.tau) : "-"});
    }
  }
  return part;
}

std::string IntervalSentence(const StepSummary& summary) {
  const IntervalSummary& interval = summary.interval;
  if (interval.rows == 0) return "No step that counts has an interval.";
  std::string text = absl::StrFormat(
      "%d of %d steps that count have a 90 %% interval; %d of them (%.1f %%) "
      "lie inside. Mean half-width: %.0f %%. Mean interval score (smaller is "
      "better; Gneiting and Raftery 2007): %.3f, against %.3f of a constant "
      "band of +-%.1f %% chosen in hindsight.",
      interval.rows, summary.counted, interval.inside,
      100.0 * interval.inside / interval.rows, 100 * interval.half_width,
      interval.score, interval.constant_score, 100 * interval.constant);
  if (summary.dropped > 0) {
    const IntervalSummary& all = summary.interval_with_dropped;
    absl::StrAppendFormat(
        &text,
        " %d more steps do not count, as their runs drop tokens and estimates "
        "have none of the kernels for that. With them %d of %d would lie "
        "inside (%.1f %%), and the score would be %.3f against %.3f",
        summary.dropped, all.inside, all.rows, 100.0 * all.inside / all.rows,
        all.score, all.constant_score);
    for (const KindSummary& kind : summary.kinds_with_dropped) {
      absl::StrAppendFormat(&text, "; %s would be %.1f %% off in the mean",
                            kind.kind, 100 * kind.absolute);
    }
    text.push_back('.');
  }
  return text;
}

std::string IntervalCell(const StepFacts& facts) {
  return facts.high > 0 ? absl::StrFormat("%.4g to %.4g", facts.low, facts.high)
                        : "";
}

// "7 of 9, 21 %"; with "!" if fewer than the least.
std::string InsideCell(int inside, const LeftOutSummary& kind,
                       double half_width) {
  return kind.rows == 0 ? "-"
                        : absl::StrFormat(
                              "%d of %d%s, %.0f %%", inside, kind.rows,
                              inside < kind.least ? "!" : "", 100 * half_width);
}

PagePart LeftOutPart(const StepSummary& summary) {
  PagePart part = {
      "Intervals of runs that did not shape them",
      "left_out",
      {"Each cell: steps inside of their 90 % interval, and its mean "
       "half-width. As given, intervals have no number from a step. Left out: "
       "their width is scaled so that nine of ten steps of all other models, "
       "devices or frameworks lie inside, then those of the family are "
       "counted. An honest interval has fewer inside than \"at least\" in one "
       "of 40 draws: those are marked with \"!\"."},
      {.header = {"Kind", "At least", "As given", "Model left out",
                  "Device left out", "Framework left out"}}};
  for (const LeftOutSummary& kind : summary.left_out) {
    std::vector<std::string> cells = {
        kind.kind, kind.rows == 0 ? "-" : absl::StrCat(kind.least),
        InsideCell(kind.inside, kind, kind.half_width)};
    for (const LeftOutSummary::Scaled& scaled : kind.left_out) {
      cells.push_back(InsideCell(scaled.inside, kind, scaled.half_width));
    }
    part.table.rows.push_back(std::move(cells));
  }
  return part;
}

std::string Memory(const StepFacts& facts) {
  if (facts.needed_bytes <= 0) return "";
  std::string text = absl::StrFormat("%.1f", facts.needed_bytes / kBytesOfGiB);
  if (facts.reserved_bytes > 0) {
    absl::StrAppendFormat(&text, " (%.1f)", facts.reserved_bytes / kBytesOfGiB);
  }
  if (!facts.fits) absl::StrAppend(&text, ", does not fit");
  return text;
}

PagePart StepsPart(const PaperResult& result) {
  PagePart part = {
      result.paper->name,
      result.paper->name,
      {absl::StrCat(result.paper->summary,
                    ". Seconds of a step; memory in GiB of the fullest device, "
                    "in brackets what the run reserved.")},
      {.header = {"Run", "Strategy", "Note", "Measured", "Estimated", "Error",
                  "Interval", "Memory"},
       .text_columns = 3}};
  for (const Comparison& row : result.rows) {
    const StepFacts& facts = *row.step;
    if (!facts.excluded.empty()) continue;
    if (!row.has_estimate()) {
      part.table.rows.push_back({row.setting, row.schedule,
                                 absl::StrCat("not expressed: ", facts.refused),
                                 row.published, "-", "-", "", ""});
      continue;
    }
    part.table.rows.push_back(
        {row.setting, row.schedule, facts.note, row.published, row.rounded,
         Percent(StepError(row)), IntervalCell(facts), Memory(facts)});
  }
  return part;
}

bool IsOlder(const Comparison& row) {
  return row.step && absl::StartsWith(row.step->excluded, "older than ");
}

// A table has measured steps alone, or none.
bool HasSteps(const std::vector<Comparison>& rows) {
  return !rows.empty() && rows[0].step;
}

bool WouldCount(const Comparison& row) {
  return row.step && row.step->excluded.empty();
}

// The same strategy in older releases: how far software alone moves a step.
PagePart FloorPart(const std::vector<PaperResult>& results) {
  PagePart part = {
      "The noise floor",
      "floor",
      {"Steps of one strategy in several releases of the same software: the "
       "newest one counts, the others show how far a release moves a step. No "
       "estimate that knows no release can be nearer to all of them."},
      {.header = {"Strategy", "Newest", "Older", "Newest, s",
                  "Older over newest"},
       .text_columns = 2}};
  const auto strategy = [](const Comparison& row) {
    return absl::StrCat(row.step->group, row.schedule);
  };
  for (const PaperResult& result : results) {
    std::map<std::string, std::vector<double>> older;
    for (const Comparison& row : result.rows) {
      if (IsOlder(row)) older[strategy(row)].push_back(NumberOf(row.published));
    }
    for (const Comparison& row : result.rows) {
      if (!WouldCount(row) || older.count(strategy(row)) == 0) continue;
      const std::vector<double>& others = older[strategy(row)];
      const auto [least, most] =
          std::minmax_element(others.begin(), others.end());
      const double newest = NumberOf(row.published);
      const std::string low = Percent(*least / newest - 1);
      part.table.rows.push_back(
          {row.schedule, row.setting, absl::StrCat(others.size()),
           row.published,
           *least == *most
               ? low
               : absl::StrCat(low, " to ", Percent(*most / newest - 1))});
    }
  }
  return part;
}

// Papers that have a release in front of each run ("26.08 DeepSeekV3"): what is
// missing at each, older releases included.
PagePart ReleasesPart(const std::vector<PaperResult>& results) {
  PagePart part = {
      "By release",
      "releases",
      {"All steps with an estimate of software that is measured again with "
       "each release, those that do not count because a newer one is there "
       "included. An estimate is the same for all releases, but each release "
       "has other runs on other devices; the noise floor has equal ones."},
      {.header = {"Release", "Kind", "Steps", "Mean", "Mean of sizes"},
       .text_columns = 2}};
  struct Errors {
    int steps = 0;
    double sum = 0;
    double sizes = 0;
  };
  // Newest first.
  std::map<std::pair<std::string, std::string>, Errors, std::greater<>> all;
  for (const auto& [paper, rows] : results) {
    if (std::none_of(rows.begin(), rows.end(), IsOlder)) continue;
    for (const Comparison& row : rows) {
      if (!row.has_estimate() || (!WouldCount(row) && !IsOlder(row))) continue;
      const std::string release = row.setting.substr(0, row.setting.find(' '));
      const bool experts = absl::StartsWith(row.step->kind, "experts");
      Errors& errors = all[{release, experts ? "experts" : "dense"}];
      ++errors.steps;
      errors.sum += StepError(row);
      errors.sizes += std::abs(StepError(row));
    }
  }
  for (const auto& [key, errors] : all) {
    part.table.rows.push_back({key.first, key.second,
                               absl::StrCat(errors.steps),
                               Percent(errors.sum / errors.steps),
                               Size(errors.sizes / errors.steps)});
  }
  return part;
}

PagePart ExcludedPart(const std::vector<PaperResult>& results,
                      const StepSummary& summary) {
  PagePart part = {
      "What does not count",
      "excluded",
      {absl::StrCat("Older releases stand above. With them ",
                    summary.excluded_rows,
                    " steps that do not count have an interval; ",
                    summary.excluded_inside, " of these lie inside.")},
      {.header = {"Run", "Strategy", "Reason", "Measured", "Estimated", "Error",
                  "Interval", "Inside"},
       .text_columns = 3}};
  for (const PaperResult& result : results) {
    for (const Comparison& row : result.rows) {
      if (!row.step || WouldCount(row) || IsOlder(row)) continue;
      part.table.rows.push_back(
          {row.setting, row.schedule, row.step->excluded, row.published,
           row.rounded, row.has_estimate() ? Percent(StepError(row)) : "-",
           IntervalCell(*row.step),
           row.step->high <= 0        ? ""
           : HalfWidthsAway(row) <= 1 ? "yes"
                                      : "no"});
    }
  }
  return part;
}

PagePart TablesPart(const std::vector<PaperResult>& results) {
  PagePart part = {"Published tables",
                   "tables",
                   {"`pipewright reproduce NAME` prints every row."},
                   {.header = {"Table", "What is compared", "Numbers", "Match",
                               "Shown, not judged"},
                    .text_columns = 2}};
  for (const auto& [paper, rows] : results) {
    if (HasSteps(rows)) continue;
    int judged = 0;
    int matching = 0;
    for (const Comparison& row : rows) {
      judged += row.is_judged() ? 1 : 0;
      matching += row.is_judged() && row.matches() ? 1 : 0;
    }
    part.table.rows.push_back(
        {paper->name, paper->metric, absl::StrCat(rows.size()),
         judged == 0 ? "-" : absl::StrCat(matching, " of ", judged),
         absl::StrCat(static_cast<int>(rows.size()) - judged)});
  }
  return part;
}

std::vector<PagePart> PartsOf(const std::vector<PaperResult>& results,
                              absl::string_view engine) {
  std::vector<Comparison> steps;
  for (const PaperResult& result : results) {
    std::copy_if(result.rows.begin(), result.rows.end(),
                 std::back_inserter(steps),
                 [](const Comparison& row) { return row.step.has_value(); });
  }
  std::vector<PagePart> parts = {
      {"Validation",
       "validation",
       {absl::StrCat("Estimates beside what others have measured, good and "
                     "bad, computed by `pipewright reproduce all --engine ",
                     engine,
                     " --markdown docs/dev/validation.md`. No constant of the "
                     "program is fitted to any step here."),
        "MLPerf rows are derived step times, not an MLPerf metric, not "
        "verified by MLCommons; each names its entry and the commit of its "
        "repository. NOTICE has all sources."},
       {}}};
  if (!steps.empty()) {
    const StepSummary summary = SummarizeSteps(steps);
    parts.push_back(KindsPart(summary));
    parts.push_back(OrdersPart(summary));
    parts.push_back(
        {"Intervals", "intervals", {IntervalSentence(summary)}, {}});
    parts.push_back(LeftOutPart(summary));
    for (const PaperResult& result : results) {
      if (HasSteps(result.rows)) parts.push_back(StepsPart(result));
    }
    parts.push_back(FloorPart(results));
    parts.push_back(ReleasesPart(results));
    parts.push_back(ExcludedPart(results, summary));
  }
  parts.push_back(TablesPart(results));
  return parts;
}

std::string Cell(const std::string& text) {
  return absl::StrReplaceAll(text, {{"|", "\\|"}, {"\n", " "}, {"*", "\\*"}});
}

}  // namespace

std::string StepSummaryToText(const StepSummary& summary) {
  if (summary.counted + summary.refused + summary.excluded == 0) return "";
  std::string text = absl::StrFormat("%-30s %5s %8s %8s %8s  %s\n", "steps",
                                     "rows", "mean", "sizes", "worst", "goal");
  for (size_t index = 0; index < summary.kinds.size(); ++index) {
    const KindSummary& kind = summary.kinds[index];
    if (kind.rows == 0) continue;
    absl::StrAppendFormat(&text, "%-30s %5d %8s %8s %8s  %s\n", kind.kind,
                          kind.rows, Percent(kind.mean), Size(kind.absolute),
                          Percent(kind.worst), GoalText(StepGoals()[index]));
  }
  for (const auto* list : {&summary.orders, &summary.small_orders}) {
    for (const OrderSummary& order : *list) {
      absl::StrAppendFormat(&text, "tau %.2f of %d steps: %s\n", order.tau,
                            order.rows, order.group);
    }
  }
  absl::StrAppend(&text, IntervalSentence(summary), "\n", summary.refused,
                  " steps that would count cannot be expressed; ",
                  summary.do_not_fit,
                  " that ran are said not to fit into memory\n");
  return text;
}

std::string ValidationMarkdown(const std::vector<PaperResult>& results,
                               absl::string_view engine) {
  std::string out;
  for (const PagePart& part : PartsOf(results, engine)) {
    absl::StrAppend(&out, out.empty() ? "# " : "\n## ", part.heading, "\n");
    for (const std::string& paragraph : part.paragraphs) {
      absl::StrAppend(&out, "\n", paragraph, "\n");
    }
    if (part.table.rows.empty()) continue;
    absl::StrAppend(&out, "\n| ", absl::StrJoin(part.table.header, " | "),
                    " |\n|");
    for (size_t column = 0; column < part.table.header.size(); ++column) {
      absl::StrAppend(&out, column < part.table.text_columns ? "---|" : "--:|");
    }
    absl::StrAppend(&out, "\n");
    for (const std::vector<std::string>& row : part.table.rows) {
      absl::StrAppend(&out, "|");
      for (const std::string& cell : row) {
        absl::StrAppend(&out, " ", Cell(cell), cell.empty() ? "|" : " |");
      }
      absl::StrAppend(&out, "\n");
    }
  }
  return out;
}

std::string ValidationHtml(const std::vector<PaperResult>& results,
                           absl::string_view engine) {
  std::string body;
  for (const PagePart& part : PartsOf(results, engine)) {
    std::string content;
    for (const std::string& paragraph : part.paragraphs) {
      absl::StrAppend(&content, "<p>", EscapeXml(paragraph), "</p>\n");
    }
    if (!part.table.rows.empty()) {
      absl::StrAppend(&content, TableHtml(part.table, part.table.rows.size()));
    }
    absl::StrAppend(&body, SectionHtml(part.id, part.heading, content));
  }
  return PageHtml("Validation", body);
}

}  // namespace pipewright
