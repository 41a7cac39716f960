#include "sim/report/class_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/program/program.h"
#include "sim/report/format.h"
#include "sim/report/html_parts.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

// Most rows of classes. Of more, the first and the last are shown, and the
// slowest.
constexpr size_t kMostClassRows = 16;

std::string MostBytes(const std::vector<double>& bytes) {
  if (bytes.empty()) return "";
  return FormatBytes(*std::max_element(bytes.begin(), bytes.end()));
}

}  // namespace

void ReportClasses(const Program& program, const RunSummary& run,
                   const std::vector<std::vector<double>>& peak_activations,
                   Report* report) {
  if (program.num_classes() == 1 || run.times.empty()) return;
  ClassesReport out;
  const std::vector<int> counts = program.ReplicasOfClasses();
  const std::vector<int> first = program.FirstReplicas();
  double weight = 0;
  double microbatches = 0;
  for (int index = 0; index < program.num_classes(); ++index) {
    const DpClass& own = program.dp_class(index);
    out.classes.push_back({.replicas = counts[index],
                           .first_replica = first[index],
                           .schedule = own.schedule->name,
                           .microbatches = own.schedule->microbatches,
                           .gradient_weight = own.gradient_weight,
                           .peak_activations = peak_activations[index]});
    weight += own.gradient_weight * counts[index];
    microbatches +=
        static_cast<double>(own.schedule->microbatches) * counts[index];
  }
  for (int replica = 0; replica < program.replicas; ++replica) {
    const RowTimes times = TimesOfRow(run.times[run.row_of_replica[replica]]);
    DpClassReport& own = out.classes[program.ClassOf(replica)];
    if (times.span_s < own.span_s) continue;
    own.span_s = times.span_s;
    own.busy_s = times.busy_s;
  }
  for (DpClassReport& own : out.classes) {
    own.gradient_weight = weight > 0 ? own.gradient_weight / weight : 0;
  }
  const auto shorter = [](const DpClassReport& left,
                          const DpClassReport& right) {
    return left.span_s < right.span_s;
  };
  const auto [least, most] =
      std::minmax_element(out.classes.begin(), out.classes.end(), shorter);
  // The first of those that are as slow.
  const auto slowest =
      std::max_element(out.classes.begin(), out.classes.end(), shorter);
  out.slowest = static_cast<int>(slowest - out.classes.begin());
  out.spread =
      most->span_s > 0 ? (most->span_s - least->span_s) / most->span_s : 0;
  const DpClass& shown = program.dp_class(out.slowest);
  report->schedule = shown.schedule->name;
  report->microbatches = shown.schedule->microbatches;
  report->ops = shown.num_passes();
  if (report->microbatches_per_s && report->iteration_s > 0) {
    report->microbatches_per_s = microbatches / report->iteration_s;
  }
  report->peak_activations =
      MostOfClasses(out, &DpClassReport::peak_activations);
  for (RankReport& rank : report->ranks) {
    rank.peak_activations = report->peak_activations[rank.rank];
  }
  report->dp_classes = std::move(out);
}

std::vector<double> MostOfClasses(
    const ClassesReport& classes,
    std::vector<double> DpClassReport::*of_ranks) {
  std::vector<double> most;
  for (const DpClassReport& own : classes.classes) {
    const std::vector<double>& values = own.*of_ranks;
    most.resize(std::max(most.size(), values.size()), 0);
    for (size_t rank = 0; rank < values.size(); ++rank) {
      most[rank] = std::max(most[rank], values[rank]);
    }
  }
  return most;
}

std::string ClassName(const ClassesReport& classes, int index) {
  const DpClassReport& own = classes.classes[index];
  return absl::StrCat("class ", index, ", ", own.replicas,
                      own.replicas == 1 ? " replica" : " replicas", " from ",
                      own.first_replica, " on, ", own.microbatches,
                      " microbatches");
}

Json ClassesToJson(const ClassesReport& classes) {
  Json rows = Json::array();
  for (const DpClassReport& own : classes.classes) {
    rows.push_back(
        {{"replicas", own.replicas},
         {"first_replica", own.first_replica},
         {"schedule", own.schedule},
         {"microbatches", own.microbatches},
         {"gradient_weight", own.gradient_weight},
         {"slower", own.slower},
         {"slow_rank", own.slow_rank < 0 ? Json() : Json(own.slow_rank)},
         {"span_s", own.span_s},
         {"busy_s", own.busy_s},
         {"peak_activations", own.peak_activations}});
    if (own.peak_memory_bytes.empty()) continue;
    rows.back()["peak_memory_bytes"] = own.peak_memory_bytes;
    rows.back()["peak_host_bytes"] = own.peak_host_bytes;
  }
  return {{"slowest", classes.slowest},
          {"memory_of", classes.hungriest},
          {"spread", classes.spread},
          {"classes", std::move(rows)}};
}

std::string ClassesToText(const ClassesReport& classes) {
  const bool memory = !classes.classes[0].peak_memory_bytes.empty();
  std::string out = absl::StrFormat(
      "%6s %9s %-18s %13s %12s %12s%s\n", "class", "replicas", "schedule",
      "microbatches", "busy", "span", memory ? "   peak memory" : "");
  const size_t count = classes.classes.size();
  for (size_t index = 0; index < count; ++index) {
    const bool shown = static_cast<int>(index) == classes.slowest ||
                       count <= kMostClassRows || index < kMostClassRows / 2 ||
                       index + kMostClassRows / 2 >= count;
    if (!shown) {
      if (index == kMostClassRows / 2) {
        absl::StrAppend(&out, "     …\n");
      }
      continue;
    }
    const DpClassReport& own = classes.classes[index];
    absl::StrAppendFormat(&out, "%6d %9d %-18s %13d %12s %12s",
                          static_cast<int>(index), own.replicas, own.schedule,
                          own.microbatches, FormatSeconds(own.busy_s),
                          FormatSeconds(own.span_s));
    if (memory) {
      absl::StrAppendFormat(&out, "%14s", MostBytes(own.peak_memory_bytes));
    }
    if (static_cast<int>(index) == classes.slowest) out += "  slowest";
    out += "\n";
  }
  absl::StrAppendFormat(
      &out,
      "  The times of this report are those of class %d, the slowest. The span "
      "of the\n  fastest class is %s shorter.%s\n",
      classes.slowest, FormatPercent(classes.spread),
      memory ? absl::StrCat(" Memory is\n  of the rank that needs most; its "
                            "table below is of class ",
                            classes.hungriest, ".")
             : "");
  return out;
}

std::string ClassesToHtml(const ClassesReport& classes) {
  return SectionHtml("dp-classes", "Classes of data-parallel replicas",
                     PlainHtml(ClassesToText(classes)));
}

}  // namespace pipewright
