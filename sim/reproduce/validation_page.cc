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
#include "sim/report/format.h"
#include "sim/report/html_parts.h"
#include "sim/reproduce/validation.h"

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

PagePart KindsPart(const StepSummary& summary) {
  PagePart part = {.heading = "Steps by kind", .id = "kinds"};
  part.paragraphs = {
      "An error is estimated over measured time, minus 1: below 0 the estimate "
      "is too fast. Goals are those of the project, not claims.",
      absl::StrCat(summary.counted, " steps count, ", summary.refused,
                   " more would but cannot be expressed, ", summary.excluded,
                   " are shown and do not count. ", summary.do_not_fit,
                   " of those that count are said not to fit into memory, "
                   "though they ran.")};
  part.table.header = {"Kind",          "Worst step", "Steps", "Mean",
                       "Mean of sizes", "Worst",      "Goal",  "Reached"};
  part.table.text_columns = 2;
  for (size_t index = 0; index < summary.kinds.size(); ++index) {
    const KindSummary& kind = summary.kinds[index];
    const StepGoal& goal = StepGoals()[index];
    const std::string wanted =
        goal.worst > 0 ? absl::StrFormat("%.0f %%, worst %.0f %%",
                                         100 * goal.mean, 100 * goal.worst)
                       : absl::StrFormat("%.0f %%", 100 * goal.mean);
    if (kind.rows == 0) {
      part.table.rows.push_back(
          {kind.kind, "", "0", "-", "-", "-", wanted, "-"});
      continue;
    }
    const bool reached =
        kind.absolute <= goal.mean &&
        (goal.worst <= 0 || std::abs(kind.worst) <= goal.worst);
    part.table.rows.push_back({kind.kind, kind.worst_row,
                               absl::StrCat(kind.rows), Percent(kind.mean),
                               Size(kind.absolute), Percent(kind.worst), wanted,
                               reached ? "yes" : "no"});
  }
  return part;
}

PagePart OrdersPart(const StepSummary& summary) {
  PagePart part = {.heading = "Order", .id = "order"};
  part.paragraphs = {
      absl::StrCat("Kendall's tau (1: same order, -1: reversed) of steps of "
                   "one model, device, number of devices and global batch. ",
                   summary.orders.empty()
                       ? "No group has five steps; smaller ones tell little."
                       : "Groups of five steps and more stand first; the goal "
                         "of 0.9 is theirs.")};
  part.table.header = {"Group", "Steps", "Pairs", "Tau"};
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
        "inside "
        "(%.1f %%), and the score would be %.3f against %.3f",
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
  PagePart part = {.heading = result.paper->name, .id = result.paper->name};
  part.paragraphs = {absl::StrCat(result.paper->summary, ". ",
                                  "Seconds of a step; memory in GiB of the "
                                  "fullest device, in brackets what the run "
                                  "reserved.")};
  part.table.header = {"Run",       "Strategy", "Note",     "Measured",
                       "Estimated", "Error",    "Interval", "Memory"};
  part.table.text_columns = 3;
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
         Percent(StepError(row)),
         facts.high > 0 ? absl::StrFormat("%.4g to %.4g", facts.low, facts.high)
                        : "",
         Memory(facts)});
  }
  return part;
}

// The same strategy in older releases: how far software alone moves a step.
PagePart FloorPart(const std::vector<PaperResult>& results) {
  PagePart part = {.heading = "The noise floor", .id = "floor"};
  part.paragraphs = {
      "Steps of one strategy in several releases of the same software: the "
      "newest one counts, the others show how far a release moves a step. No "
      "estimate that knows no release can be nearer to all of them."};
  part.table.header = {"Strategy", "Newest", "Older", "Newest, s",
                       "Older over newest"};
  part.table.text_columns = 2;
  for (const PaperResult& result : results) {
    std::map<std::string, std::vector<const Comparison*>> older;
    for (const Comparison& row : result.rows) {
      if (row.step && absl::StartsWith(row.step->excluded, "older than ")) {
        older[absl::StrCat(row.step->group, row.schedule)].push_back(&row);
      }
    }
    for (const Comparison& row : result.rows) {
      if (!row.step || !row.step->excluded.empty()) continue;
      const auto others =
          older.find(absl::StrCat(row.step->group, row.schedule));
      if (others == older.end()) continue;
      double least = std::numeric_limits<double>::infinity();
      double most = 0;
      const double newest = NumberOf(row.published);
      for (const Comparison* other : others->second) {
        const double over = NumberOf(other->published) / newest;
        least = std::min(least, over);
        most = std::max(most, over);
      }
      part.table.rows.push_back(
          {row.schedule, row.setting, absl::StrCat(others->second.size()),
           row.published,
           least == most
               ? Percent(least - 1)
               : absl::StrCat(Percent(least - 1), " to ", Percent(most - 1))});
    }
  }
  return part;
}

// Of papers that have a release in front of each run ("26.08 DeepSeekV3"): what
// is missing at each, older releases included.
PagePart ReleasesPart(const std::vector<PaperResult>& results) {
  PagePart part = {.heading = "By release", .id = "releases"};
  part.paragraphs = {
      "All steps with an estimate of software that is measured again with each "
      "release, those that do not count because a newer one is there "
      "included. An estimate is the same for all releases, but each release "
      "has other runs on other devices; the noise floor has equal ones."};
  part.table.header = {"Release", "Kind", "Steps", "Mean", "Mean of sizes"};
  part.table.text_columns = 2;
  struct Errors {
    int steps = 0;
    double sum = 0;
    double sizes = 0;
  };
  // Newest first.
  std::map<std::pair<std::string, std::string>, Errors, std::greater<>> all;
  for (const PaperResult& result : results) {
    const auto is_older = [](const Comparison& row) {
      return row.step && absl::StartsWith(row.step->excluded, "older than ");
    };
    if (std::none_of(result.rows.begin(), result.rows.end(), is_older)) {
      continue;
    }
    for (const Comparison& row : result.rows) {
      if (!row.step || !row.has_estimate() ||
          (!row.step->excluded.empty() && !is_older(row))) {
        continue;
      }
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

PagePart ExcludedPart(const std::vector<PaperResult>& results) {
  PagePart part = {.heading = "What does not count", .id = "excluded"};
  part.paragraphs = {"Older releases stand above."};
  part.table.header = {"Run",      "Strategy",  "Reason",
                       "Measured", "Estimated", "Error"};
  part.table.text_columns = 3;
  for (const PaperResult& result : results) {
    for (const Comparison& row : result.rows) {
      if (!row.step || row.step->excluded.empty() ||
          absl::StartsWith(row.step->excluded, "older than ")) {
        continue;
      }
      part.table.rows.push_back(
          {row.setting, row.schedule, row.step->excluded, row.published,
           row.rounded, row.has_estimate() ? Percent(StepError(row)) : "-"});
    }
  }
  return part;
}

PagePart TablesPart(const std::vector<PaperResult>& results) {
  PagePart part = {.heading = "Published tables", .id = "tables"};
  part.paragraphs = {"`pipewright reproduce NAME` prints every row."};
  part.table.header = {"Table", "What is compared", "Numbers", "Match",
                       "Shown, not judged"};
  part.table.text_columns = 2;
  for (const PaperResult& result : results) {
    int judged = 0;
    int matching = 0;
    bool has_steps = false;
    for (const Comparison& row : result.rows) {
      has_steps |= row.step.has_value();
      if (!row.is_judged()) continue;
      ++judged;
      matching += row.matches() ? 1 : 0;
    }
    if (has_steps) continue;
    part.table.rows.push_back(
        {result.paper->name, result.paper->metric,
         absl::StrCat(result.rows.size()),
         judged == 0 ? "-" : absl::StrCat(matching, " of ", judged),
         absl::StrCat(result.rows.size() - judged)});
  }
  return part;
}

std::vector<PagePart> PartsOf(const std::vector<PaperResult>& results,
                              absl::string_view engine) {
  std::vector<Comparison> steps;
  for (const PaperResult& result : results) {
    for (const Comparison& row : result.rows) {
      if (row.step) steps.push_back(row);
    }
  }
  std::vector<PagePart> parts;
  PagePart first = {.heading = "Validation", .id = "validation"};
  first.paragraphs = {
      absl::StrCat("Estimates beside what others have measured, good and bad, "
                   "computed by `pipewright reproduce all --engine ",
                   engine,
                   " --markdown docs/validation.md`. No constant of the "
                   "program is fitted to any step here."),
      "MLPerf rows are derived step times, not an MLPerf metric, not verified "
      "by MLCommons; each names its entry and the commit of its repository. "
      "NOTICE has all sources."};
  parts.push_back(std::move(first));
  if (!steps.empty()) {
    const StepSummary summary = SummarizeSteps(steps);
    parts.push_back(KindsPart(summary));
    parts.push_back(OrdersPart(summary));
    parts.push_back({.heading = "Intervals",
                     .id = "intervals",
                     .paragraphs = {IntervalSentence(summary)}});
    for (const PaperResult& result : results) {
      if (!result.rows.empty() && result.rows[0].step) {
        parts.push_back(StepsPart(result));
      }
    }
    parts.push_back(FloorPart(results));
    parts.push_back(ReleasesPart(results));
    parts.push_back(ExcludedPart(results));
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
    const StepGoal& goal = StepGoals()[index];
    absl::StrAppendFormat(
        &text, "%-30s %5d %8s %8s %8s  %.0f %%%s\n", kind.kind, kind.rows,
        Percent(kind.mean), Size(kind.absolute), Percent(kind.worst),
        100 * goal.mean,
        goal.worst > 0 ? absl::StrFormat(", worst %.0f %%", 100 * goal.worst)
                       : "");
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
