// ReportToText (report.h).
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/quantity.h"
#include "sim/memory/activations.h"
#include "sim/report/facts.h"
#include "sim/report/format.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

// More ranks than this are cut down to the first and the last kEndRows.
constexpr size_t kMaxRows = 32;
constexpr size_t kEndRows = 8;

std::string Header(const Report& report) {
  std::vector<std::string> facts;
  for (const ReportFact& fact : FactsOf(report)) {
    if (fact.kind != ReportFact::Kind::kProfile) {
      facts.push_back(FactText(fact));
    }
  }
  return absl::StrCat(report.schedule, ": ", absl::StrJoin(facts, ", "),
                      "\n\n");
}

std::string Bubbles(const Report& report) {
  const auto line = [](absl::string_view name, double span, double fraction,
                       double overhead) {
    return absl::StrFormat("%-10s %12s  %20s  %20s\n", name,
                           FormatSeconds(span), FormatPercent(fraction),
                           FormatPercent(overhead));
  };
  return absl::StrCat(
      absl::StrFormat("%-10s %12s  %20s  %20s\n", "", "span", "bubble fraction",
                      "bubble overhead"),
      absl::StrFormat("%-10s %12s  %20s  %20s\n", "", "",
                      "(span - busy) / span", "(span - busy) / busy"),
      line("global", report.span_s.global, report.bubble_fraction.global,
           report.bubble_overhead.global),
      line("per rank", report.span_s.per_rank, report.bubble_fraction.per_rank,
           report.bubble_overhead.per_rank),
      "  global:   first start on any rank to last end on any rank\n"
      "  per rank: the longest of the ranks' own spans, own first start to "
      "own last end\n"
      "  busy:     pass time of the busiest rank\n\n");
}

std::string RankTable(const Report& report) {
  double largest = 0;
  for (const RankReport& rank : report.ranks) {
    largest = std::max({largest, rank.span_s, rank.busy_s});
  }
  // Three decimals of a unit ten times smaller, so that idle times show.
  const TimeUnit unit = UnitFor(largest / 10);
  const auto column = [&unit](absl::string_view name) {
    return absl::StrFormat("%s (%s)", name, unit.name);
  };
  std::string out =
      absl::StrFormat("%6s %12s %12s %12s %17s\n", "rank", column("busy"),
                      column("span"), column("idle"), "peak activations");
  const size_t count = report.ranks.size();
  for (size_t index = 0; index < count; ++index) {
    if (count > kMaxRows && index == kEndRows) {
      absl::StrAppend(&out, "     … ", count - 2 * kEndRows, " more\n");
      index = count - kEndRows;
    }
    const RankReport& rank = report.ranks[index];
    absl::StrAppendFormat(&out, "%6d %12.3f %12.3f %12.3f %17.4g\n", rank.rank,
                          rank.busy_s / unit.seconds,
                          rank.span_s / unit.seconds,
                          rank.idle_s / unit.seconds, rank.peak_activations);
  }
  return absl::StrCat(
      out, "  peak activations: ",
      report.held_until_weight
          ? PeakActivationsNote(*report.held_until_weight)
          : "in microbatches through all the rank's stages of one direction",
      "\n");
}

// The first and last lines, as many as the table of ranks has rows.
std::string Indented(absl::string_view text) {
  std::vector<absl::string_view> lines =
      absl::StrSplit(text, '\n', absl::SkipEmpty());
  std::string out;
  for (size_t line = 0; line < lines.size(); ++line) {
    if (lines.size() > kMaxRows + 1 && line == kEndRows) {
      absl::StrAppend(&out, "  …\n");
      line = lines.size() - kEndRows;
    }
    absl::StrAppend(&out, "  ", lines[line], "\n");
  }
  return out;
}

}  // namespace

std::string ReportToText(const Report& report) {
  const TimesInUnits units(report.in_units);
  std::string out = Header(report);
  out += ReportLine("iteration time", FormatSeconds(report.iteration_s),
                    PeriodNote(report));
  if (report.interval) {
    out += ReportLine(
        "interval", "",
        absl::StrCat("90 % of steps: ",
                     IntervalText(*report.interval, report.iteration_s)));
  }
  if (report.found_order) {
    const FoundOrder& found = *report.found_order;
    // sim/schedule/order_task.h says why.
    const bool chooses =
        std::any_of(report.params.begin(), report.params.end(),
                    [](const auto& own) { return own.second == "choose"; });
    const char* const of_class =
        chooses ? "with microbatches in order on each stage " : "";
    out += ReportLine(
        "best order", FormatSeconds(found.time),
        absl::StrCat("span ", found.is_whole ? "of all ranks" : "of a rank",
                     " with plain hops and nominal times; none ", of_class,
                     "takes less than ", FormatSeconds(found.least_time),
                     " (gap ", FormatPercent(found.gap()), ")"));
    out += ReportLine("made from", FormatSeconds(found.start_time),
                      absl::StrCat(found.start, ", in ", found.steps,
                                   " orders that were timed",
                                   found.is_cut ? ", cut by a signal" : ""));
  }
  if (report.sequences) out += SequencesToText(*report.sequences);
  out += CollectivesToText(report.collectives);
  if (report.slow) out += SlowToText(*report.slow);
  if (report.offload) out += OffloadToText(*report.offload);
  if (report.throughput) out += ThroughputToText(*report.throughput);
  if (report.reliability) out += ReliabilityToText(*report.reliability);
  if (report.microbatches_per_s) {
    out += ReportLine(report.in_units ? "microbatches/unit" : "microbatches/s",
                      absl::StrFormat("%.6g", *report.microbatches_per_s),
                      "never flushed, of all replicas");
    const auto list = [&out](absl::string_view name,
                             const std::vector<int>& values,
                             absl::string_view what) {
      const auto [least, most] =
          std::minmax_element(values.begin(), values.end());
      out += ReportLine(name,
                        *least == *most ? absl::StrCat(*most)
                                        : absl::StrCat(*least, " to ", *most),
                        what);
    };
    list("weights", report.weight_versions,
         "versions that a rank holds at a time");
    list("staleness", report.staleness,
         "steps between the weights of a forward and those that it changes");
  }
  for (const RollbackReport& rollback : report.rollbacks) {
    out += ReportLine(
        "roll-back", FormatSeconds(rollback.cost_s),
        absl::StrCat("the step of iteration ", rollback.iteration, " failed"));
  }
  out += ReportLine("busy", FormatSeconds(report.busy_s),
                    "pass time of the busiest rank");
  absl::StrAppend(
      &out, ReportLine("passes", absl::StrCat(report.ops), "of one iteration"),
      "\n");
  if (report.dp_classes) {
    absl::StrAppend(&out, ClassesToText(*report.dp_classes), "\n");
  }
  absl::StrAppend(&out, Bubbles(report), RankTable(report));
  if (report.profile) {
    absl::StrAppend(&out, "\n", ProfileCostsToText(*report.profile));
  }
  if (report.memory) {
    absl::StrAppend(&out, "\n", MemoryToText(*report.memory, kMaxRows));
  }
  if (!report.mapping.empty()) {
    absl::StrAppend(&out, "\nranks on devices, a column a replica:\n",
                    Indented(report.mapping));
  }
  if (report.bytes_sent > 0) {
    absl::StrAppend(&out,
                    "\nsent between ranks: ", FormatBytes(report.bytes_sent),
                    " an iteration\n");
  }
  if (!report.not_modelled.empty()) {
    absl::StrAppend(&out, "\nnot modelled: ",
                    absl::StrJoin(report.not_modelled, "; "), "\n");
  }
  for (const std::string& warning : report.warnings) {
    absl::StrAppend(&out, "warning: ", warning, "\n");
  }
  return out;
}

}  // namespace pipewright
