#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/diagnose/diagnosis.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

constexpr size_t kMostShown = 32;
constexpr double kLeastShown = 1e-9;  // below a trace's resolution

using Rows = std::vector<std::vector<std::string>>;

std::string SignedSeconds(double seconds) {
  if (std::abs(seconds) < kLeastShown) return "0 s";
  return absl::StrCat(seconds < 0 ? "-" : "+",
                      FormatSeconds(seconds < 0 ? -seconds : seconds));
}

// The most harmful first.
std::vector<JobWhatIf> ByHarm(std::vector<JobWhatIf> list) {
  std::stable_sort(list.begin(), list.end(),
                   [](const JobWhatIf& a, const JobWhatIf& b) {
                     return a.slowdown_keep > b.slowdown_keep;
                   });
  return list;
}

std::vector<std::string> WhatIfCells(const JobWhatIf& what) {
  return {what.name, absl::StrFormat("%.4f", what.slowdown_keep),
          FormatChange(what.speedup_fix - 1)};
}

std::string WhatIfTable(const char* head, const std::vector<JobWhatIf>& list) {
  Rows rows = {{head, "keep", "faster"}};
  for (const JobWhatIf& what : ByHarm(list)) {
    if (rows.size() > kMostShown) break;
    rows.push_back(WhatIfCells(what));
  }
  std::string out = TextTable(rows);
  if (list.size() > kMostShown) {
    absl::StrAppend(&out, "... and ", list.size() - kMostShown, " more\n");
  }
  return out;
}

std::string KindTables(const Diagnosis& diagnosis) {
  Rows rows = {{"kind", "keep", "faster", "gaps"}};
  for (const JobWhatIf& what : ByHarm(diagnosis.kinds)) {
    rows.push_back(WhatIfCells(what));
    rows.back().push_back(SignedSeconds(what.gap_s));
  }
  Rows ideals = {{"ideal times", "operations", "ideal", "longest"}};
  for (const KindIdeal& kind : diagnosis.kind_ideals) {
    ideals.push_back({kind.kind, absl::StrCat(kind.operations),
                      FormatSeconds(kind.ideal_s),
                      FormatSeconds(kind.largest_s)});
  }
  return absl::StrCat(TextTable(rows), "\n", TextTable(ideals));
}

// A row a replica, a column a stage; the slowest replicas where there are many.
std::string HeatTable(const MeasuredJob& job, const Diagnosis& diagnosis) {
  Rows rows = {{"slowdown by worker"}};
  for (int stage = 0; stage < job.pp; ++stage) {
    rows[0].push_back(absl::StrCat(job.place, " ", stage));
  }
  std::vector<int> order;
  for (int replica = 0; replica < job.dp; ++replica) order.push_back(replica);
  const bool cut = order.size() > kMostShown;
  if (cut) {
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
      return diagnosis.replicas[a].slowdown_keep >
             diagnosis.replicas[b].slowdown_keep;
    });
    order.resize(kMostShown);
  }
  for (const int replica : order) {
    rows.push_back({absl::StrCat("replica ", replica)});
    for (int stage = 0; stage < job.pp; ++stage) {
      rows.back().push_back(absl::StrFormat(
          "%.3f", diagnosis.workers[replica * job.pp + stage].slowdown_keep));
    }
  }
  std::string out = TextTable(rows);
  if (cut) {
    absl::StrAppend(&out, "... the ", kMostShown, " slowest of ", job.dp,
                    " replicas\n");
  }
  return out;
}

Json WhatIfJson(const JobWhatIf& what, const char* key, Json value, bool kind) {
  Json out = {{key, std::move(value)}};
  if (what.stage >= 0 && what.replica >= 0) out["dp_rank"] = what.replica;
  if (what.operations > 0) out["operations"] = what.operations;
  out["slowdown_keep"] = what.slowdown_keep;
  out["speedup_fix"] = what.speedup_fix;
  if (kind) out["gap_s"] = what.gap_s;
  return out;
}

}  // namespace

int SlowestReplica(const Diagnosis& diagnosis) {
  const auto slowest =
      std::max_element(diagnosis.workers.begin(), diagnosis.workers.end(),
                       [](const JobWhatIf& a, const JobWhatIf& b) {
                         return a.slowdown_keep < b.slowdown_keep;
                       });
  return slowest == diagnosis.workers.end() ? 0 : slowest->replica;
}

std::string DiagnosisToText(const MeasuredJob& job,
                            const Diagnosis& diagnosis) {
  std::string steps = absl::StrCat(job.num_steps(), " steps");
  if (job.num_steps() == 1) {
    steps = job.iterations == 1
                ? "one step"
                : absl::StrCat(job.iterations, " iterations as one step");
  }
  int64_t worst = 0;
  for (const StepAnswer& step : diagnosis.steps) {
    if (step.gap_error == diagnosis.worst_gap_error) worst = step.step;
  }
  std::string error =
      absl::StrCat(FormatChange(diagnosis.gap_error), " of the recorded");
  if (job.num_steps() > 1) {
    absl::StrAppend(&error, " in the mean, ",
                    FormatChange(diagnosis.worst_gap_error), " in step ",
                    worst);
  }
  const bool median = diagnosis.ideal == ComputeIdeal::kMedian;
  std::string out = absl::StrCat(
      job.source, ": ", job.pp, " ", job.place, job.pp == 1 ? "" : "s", ", ",
      job.dp, " replica", job.dp == 1 ? "" : "s", ", ", steps, " of ",
      job.num_ops(), " operations\n\n",
      TextTable(
          {{"recorded", FormatSeconds(diagnosis.recorded_s)},
           {"re-created without gaps", FormatSeconds(diagnosis.no_gap_s),
            error},
           {"ideal", FormatSeconds(diagnosis.ideal_s),
            absl::StrCat(median ? "median" : "mean",
                         " of compute, median transfer of communication")},
           {"slowdown by stragglers",
            absl::StrFormat("%.4f", diagnosis.straggler_slowdown)}}),
      "\nkeep: the ideal step with only these at their own times, over the "
      "ideal one\nfaster: the step without gaps, if only these took the ideal "
      "time\ngaps: what the gaps of these alone add to the step; a gap may "
      "hide a wait\n\n",
      KindTables(diagnosis));
  if (job.pp > 1) {
    absl::StrAppend(&out, "\n",
                    WhatIfTable(job.place.c_str(), diagnosis.stages));
  }
  if (job.dp > 1) {
    absl::StrAppend(&out, "\n", WhatIfTable("replica", diagnosis.replicas));
  }
  absl::StrAppend(&out, "\n", WhatIfTable("worker", diagnosis.workers), "\n",
                  HeatTable(job, diagnosis));
  return out;
}

std::string DiagnosisToJson(const MeasuredJob& job,
                            const Diagnosis& diagnosis) {
  const bool median = diagnosis.ideal == ComputeIdeal::kMedian;
  Json out = {{"source", job.source},
              {"form", job.form},
              {"pp", job.pp},
              {"dp", job.dp},
              {"operations", job.num_ops()},
              {"iterations", job.iterations},
              {"ideal", median ? "median" : "mean"},
              {"time_unit", TimeUnitName(job.in_units)},
              {"recorded_s", diagnosis.recorded_s},
              {"no_gap_s", diagnosis.no_gap_s},
              {"ideal_s", diagnosis.ideal_s},
              {"gap_error", diagnosis.gap_error},
              {"worst_gap_error", diagnosis.worst_gap_error},
              {"gap_slowdown", diagnosis.gap_slowdown},
              {"straggler_slowdown", diagnosis.straggler_slowdown}};
  Json& steps = out["steps"] = Json::array();
  for (const StepAnswer& step : diagnosis.steps) {
    steps.push_back({{"step", step.step},
                     {"recorded_s", step.recorded_s},
                     {"with_gaps_s", step.with_gaps_s},
                     {"no_gap_s", step.no_gap_s},
                     {"gap_error", step.gap_error}});
  }
  Json& ideals = out["ideal_times"] = Json::array();
  for (const KindIdeal& kind : diagnosis.kind_ideals) {
    ideals.push_back({{"optype", kind.kind},
                      {"communication", kind.communication},
                      {"operations", kind.operations},
                      {"ideal_s", kind.ideal_s},
                      {"longest_s", kind.largest_s}});
  }
  const auto list = [&](const char* name, const char* key,
                        const std::vector<JobWhatIf>& what) {
    Json& rows = out[name] = Json::array();
    for (const JobWhatIf& each : what) {
      const bool kind = each.stage < 0 && each.replica < 0;
      rows.push_back(WhatIfJson(each, key,
                                kind              ? Json(each.name)
                                : each.stage >= 0 ? Json(each.stage)
                                                  : Json(each.replica),
                                kind));
    }
  };
  list("optypes", "optype", diagnosis.kinds);
  list("stages", "stage", diagnosis.stages);
  list("dp_ranks", "dp_rank", diagnosis.replicas);
  list("workers", "stage", diagnosis.workers);
  out["workers_estimated"] = diagnosis.workers_estimated;
  out["warnings"] = diagnosis.warnings;
  return out.dump(2);
}

}  // namespace pipewright
