#include "sim/analysis/compare/run_summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "sim/base/json.h"
#include "sim/base/statistics.h"
#include "sim/base/status.h"
#include "sim/engine/fast_engine.h"
#include "sim/program/lower.h"
#include "sim/program/program.h"
#include "sim/schedule/registry.h"

namespace pipewright {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

template <class Value>
double MedianOver(const std::vector<ExecutedRow>& rows, Value value) {
  std::vector<double> values;
  for (const ExecutedRow& row : rows) values.push_back(row.*value);
  return Median(std::move(values));
}

double MedianError(const std::vector<RepeatedRun>& runs) {
  std::vector<double> errors;
  for (const RepeatedRun& run : runs) errors.push_back(run.error());
  return MedianMagnitude(std::move(errors));
}

const RepeatedRun& Worst(const std::vector<RepeatedRun>& runs) {
  return *std::max_element(runs.begin(), runs.end(),
                           [](const RepeatedRun& one, const RepeatedRun& two) {
                             return std::abs(one.error()) <
                                    std::abs(two.error());
                           });
}

// What checks find, the worst last.
size_t Badness(const std::string& gradients) {
  const std::vector<std::string> order = {"unchecked", "bits", "tolerance",
                                          "differ"};
  return static_cast<size_t>(std::find(order.begin(), order.end(), gradients) -
                             order.begin());
}

// Takes rows with one key together.
RepeatedRun Together(const std::vector<ExecutedRow>& rows) {
  RepeatedRun run;
  run.row = rows[0];
  run.executions = static_cast<int>(rows.size());
  run.row.predicted_s = MedianOver(rows, &ExecutedRow::predicted_s);
  run.row.executed_s = MedianOver(rows, &ExecutedRow::executed_s);
  run.least_error = run.most_error = rows[0].error();
  run.row.wall_s = 0;
  for (const ExecutedRow& row : rows) {
    run.least_error = std::min(run.least_error, row.error());
    run.most_error = std::max(run.most_error, row.error());
    run.row.shortest_pass_s =
        std::min(run.row.shortest_pass_s, row.shortest_pass_s);
    run.row.wall_s += row.wall_s;
    if (Badness(row.gradients) > Badness(run.row.gradients)) {
      run.row.gradients = row.gradients;
    }
    if (run.row.peaks_agree() && !row.peaks_agree()) {
      run.row.peak_activations = row.peak_activations;
    }
  }
  return run;
}

void Rank(RanksSummary* size) {
  int balance = 0;
  for (size_t one = 0; one < size->runs.size(); ++one) {
    for (size_t two = one + 1; two < size->runs.size(); ++two) {
      const ExecutedRow& fast = size->runs[one].row;
      const ExecutedRow& slow = size->runs[two].row;
      const std::pair<std::string, std::string> names = {RunName(fast),
                                                         RunName(slow)};
      if (slow.predicted_s / fast.predicted_s - 1 < kTieShare) {
        size->ties.push_back(names);
        continue;
      }
      ++size->pairs;
      if (fast.executed_s < slow.executed_s) {
        ++balance;
      } else {
        --balance;
        size->swapped.push_back(names);
      }
    }
  }
  if (size->pairs > 0) size->tau = static_cast<double>(balance) / size->pairs;
}

void AddOnce(const std::string& value, std::vector<std::string>* values) {
  if (value.empty()) return;
  if (std::find(values->begin(), values->end(), value) != values->end()) return;
  values->push_back(value);
}

Json ControlJson(const std::optional<ControlSummary>& control) {
  if (!control) return nullptr;
  return {{"runs", control->runs},
          {"median_error", control->median_error},
          {"worst_error", control->worst_error},
          {"worst", control->worst},
          {"tau", control->pairs > 0 ? Json(control->tau) : Json()},
          {"pairs", control->pairs},
          {"ties", control->ties}};
}

Json PairsJson(const Pairs& pairs) {
  Json out = Json::array();
  for (const auto& [one, two] : pairs) {
    out.push_back(Json::array({one, two}));
  }
  return out;
}

}  // namespace

std::string TauInWords(int pairs, double tau) {
  return pairs > 0 ? absl::StrFormat("tau %.3f", tau) : "no tau";
}

std::string PairsText(const Pairs& pairs, absl::string_view between) {
  return absl::StrJoin(pairs, ", ", absl::PairFormatter(between));
}

std::string RunName(const ExecutedRow& row) {
  return row.even() ? row.schedule : absl::StrCat(row.schedule, " (uneven)");
}

absl::StatusOr<RunsSummary> SummarizeRuns(
    const std::vector<ExecutedRow>& rows) {
  if (rows.empty()) {
    return BadValue("--summary", "a table without rows",
                    "at least one run of execute --row");
  }
  RunsSummary out;
  out.executions = static_cast<int>(rows.size());
  out.first_date = out.last_date = rows[0].date;
  // In the order of the table.
  std::vector<std::vector<ExecutedRow>> grouped;
  std::map<std::string, size_t> places;
  for (const ExecutedRow& row : rows) {
    const auto [found, added] = places.emplace(
        absl::StrCat(row.Key(), " on ", row.device), grouped.size());
    if (added) grouped.emplace_back();
    grouped[found->second].push_back(row);
    AddOnce(row.device, &out.devices);
    AddOnce(row.libraries, &out.libraries);
    AddOnce(row.profile, &out.profiles);
    AddOnce(row.version, &out.versions);
    AddOnce(row.clock, &out.clocks);
    out.first_date = std::min(out.first_date, row.date);
    out.last_date = std::max(out.last_date, row.date);
  }
  std::vector<RepeatedRun> runs;
  for (const std::vector<ExecutedRow>& same : grouped) {
    runs.push_back(Together(same));
  }
  out.runs = static_cast<int>(runs.size());
  out.median_error = MedianError(runs);
  const RepeatedRun& worst = Worst(runs);
  out.worst_error = worst.error();
  out.worst = absl::StrCat(RunName(worst.row), ", pp ", worst.row.pp);
  out.shortest_pass_s = runs[0].row.shortest_pass_s;
  std::map<int, RanksSummary> sizes;
  for (RepeatedRun& run : runs) {
    const ExecutedRow& row = run.row;
    out.shortest_pass_s = std::min(out.shortest_pass_s, row.shortest_pass_s);
    out.wall_s += row.wall_s;
    out.same_bits += row.gradients == "bits" ? 1 : 0;
    out.agree += row.gradients_agree() ? 1 : 0;
    out.unchecked += row.gradients == "unchecked" ? 1 : 0;
    out.peaks_agree += row.peaks_agree() ? 1 : 0;
    RanksSummary& size = sizes[row.pp];
    size.pp = row.pp;
    size.runs.push_back(std::move(run));
  }
  for (auto& [pp, size] : sizes) {
    std::stable_sort(size.runs.begin(), size.runs.end(),
                     [](const RepeatedRun& one, const RepeatedRun& two) {
                       return one.row.predicted_s < two.row.predicted_s;
                     });
    size.median_error = MedianError(size.runs);
    size.worst_error = Worst(size.runs).error();
    size.worst = RunName(Worst(size.runs).row);
    Rank(&size);
    out.sizes.push_back(std::move(size));
  }
  AddControl(&out);
  return out;
}

std::string ControlInWords(const ControlSummary& control) {
  return absl::StrFormat(
      "error %.2f %% in the median of %d, %+.2f %% at worst (%s); order of %d "
      "pairs: %s, %d within %.0f %% left out",
      control.median_error * 100, control.runs, control.worst_error * 100,
      control.worst, control.pairs, TauInWords(control.pairs, control.tau),
      control.ties, kTieShare * 100);
}

std::string ConditionsInWords(const RunsSummary& summary) {
  std::string words =
      absl::StrCat(absl::StrJoin(summary.clocks, " and "), " clock");
  const bool computed =
      std::any_of(summary.clocks.begin(), summary.clocks.end(),
                  [](const std::string& clock) { return clock != "real"; });
  if (computed) {
    absl::StrAppend(&words,
                    summary.clocks.size() > 1 ? " (where not real, " : " (",
                    "messages, copies and collectives are given, not "
                    "measured)");
  }
  if (summary.executions > summary.runs) {
    absl::StrAppend(&words, "; the median of the executions of a run");
  }
  return absl::StrCat(words,
                      "; hops, interference and how many ranks computed at a "
                      "time are in no column of the table");
}

std::string RunsToText(const RunsSummary& summary) {
  std::string text;
  for (const RanksSummary& size : summary.sizes) {
    absl::StrAppendFormat(&text, "pp %d%33s%12s%9s%7s%19s   %-10s %s\n",
                          size.pp, "predicted", "executed", "error", "times",
                          "of one", "gradients", "peak activations");
    for (const RepeatedRun& run : size.runs) {
      const ExecutedRow& row = run.row;
      absl::StrAppendFormat(
          &text, "  %-26s%8.2f ms %8.2f ms %+7.2f %%%5d%+8.2f to %+6.2f %%",
          RunName(row), row.predicted_s * 1e3, row.executed_s * 1e3,
          row.error() * 100, run.executions, run.least_error * 100,
          run.most_error * 100);
      absl::StrAppendFormat(&text, "   %-10s %s\n", row.gradients,
                            row.peak_activations);
    }
    absl::StrAppendFormat(
        &text,
        "  error %.2f %% in the median, %+.2f %% at worst (%s); order of %d "
        "pairs: %s, %d within %.0f %% left out\n",
        size.median_error * 100, size.worst_error * 100, size.worst, size.pairs,
        TauInWords(size.pairs, size.tau), size.ties.size(), kTieShare * 100);
    if (!size.ties.empty()) {
      absl::StrAppend(&text, "  left out: ", PairsText(size.ties, " - "), "\n");
    }
    if (size.control) {
      absl::StrAppend(&text, "  control: ", ControlInWords(*size.control),
                      "\n");
    }
    absl::StrAppend(&text, "\n");
  }
  absl::StrAppendFormat(
      &text,
      "%d runs, executed %d times: error %.2f %% in the median, %+.2f %% at "
      "worst (%s); gradients of %d agree, of %d bit for bit, %d unchecked; "
      "peak "
      "activations of %d as predicted; passes of %.1f ms and more\n",
      summary.runs, summary.executions, summary.median_error * 100,
      summary.worst_error * 100, summary.worst, summary.agree,
      summary.same_bits, summary.unchecked, summary.peaks_agree,
      summary.shortest_pass_s * 1e3);
  if (summary.control) {
    absl::StrAppend(&text, "control: ", ControlInWords(*summary.control), "; ",
                    kControlMeaning, "\n");
  }
  for (const std::string& run : summary.without_control) {
    absl::StrAppend(&text, "no control of ", run, "\n");
  }
  absl::StrAppend(&text, "conditions: ", ConditionsInWords(summary), "\n");
  return text;
}

std::string RunsToJson(const RunsSummary& summary) {
  Json out = {{"runs", summary.runs},
              {"executions", summary.executions},
              {"median_error", summary.median_error},
              {"worst_error", summary.worst_error},
              {"worst", summary.worst},
              {"control", ControlJson(summary.control)},
              {"without_control", summary.without_control},
              {"conditions", ConditionsInWords(summary)},
              {"shortest_pass_s", summary.shortest_pass_s},
              {"gradients_agree", summary.agree},
              {"gradients_same_bits", summary.same_bits},
              {"gradients_unchecked", summary.unchecked},
              {"peak_activations_agree", summary.peaks_agree},
              {"devices", summary.devices},
              {"libraries", summary.libraries},
              {"profiles", summary.profiles},
              {"versions", summary.versions},
              {"clocks", summary.clocks},
              {"first_date", summary.first_date},
              {"last_date", summary.last_date}};
  Json sizes = Json::array();
  for (const RanksSummary& size : summary.sizes) {
    Json rows = Json::array();
    for (const RepeatedRun& run : size.runs) {
      const ExecutedRow& row = run.row;
      rows.push_back(
          {{"schedule", row.schedule},
           {"vpp", row.vpp},
           {"microbatches", row.microbatches},
           {"microbatch_size", row.microbatch_size},
           {"sequence", row.sequence},
           {"slices", row.slices},
           {"layers", row.layers},
           {"predicted_s", row.predicted_s},
           {"executed_s", row.executed_s},
           {"error", row.error()},
           {"control_s", run.control_s ? Json(*run.control_s) : Json()},
           {"control_error",
            run.control_s ? Json(run.control_error()) : Json()},
           {"executions", run.executions},
           {"least_error", run.least_error},
           {"most_error", run.most_error},
           {"gradients", row.gradients},
           {"peak_activations_agree", row.peaks_agree()}});
    }
    sizes.push_back({{"pp", size.pp},
                     {"median_error", size.median_error},
                     {"worst_error", size.worst_error},
                     {"worst", size.worst},
                     {"tau", size.pairs > 0 ? Json(size.tau) : Json()},
                     {"pairs", size.pairs},
                     {"swapped", PairsJson(size.swapped)},
                     {"ties", PairsJson(size.ties)},
                     {"control", ControlJson(size.control)},
                     {"rows", std::move(rows)}});
  }
  out["sizes"] = std::move(sizes);
  return out.dump(2);
}

namespace {

absl::StatusOr<PassCosts> CostsOf(const ExecutedRow& row, int stages) {
  const std::vector<absl::string_view> counts =
      absl::StrSplit(row.layers, ' ', absl::SkipEmpty());
  if (counts.size() != static_cast<size_t>(stages)) {
    return BadValue("layers", row.layers,
                    absl::StrCat("a number for each of ", stages, " stages"));
  }
  const double tokens = static_cast<double>(row.microbatch_size) * row.sequence;
  PassCosts costs;
  for (const absl::string_view count : counts) {
    int layers = 0;
    if (!absl::SimpleAtoi(count, &layers) || layers < 0) {
      return BadValue("layers", row.layers, "numbers of layers");
    }
    const double seconds = tokens * layers;
    costs.stages.push_back({.forward_s = seconds,
                            .backward_input_s = seconds,
                            .backward_weight_s = seconds});
  }
  return costs;
}

using Runs = std::vector<const RepeatedRun*>;

ControlSummary SummaryOf(const Runs& runs, bool of_all) {
  ControlSummary out;
  out.runs = static_cast<int>(runs.size());
  std::vector<double> sizes;
  int balance = 0;
  for (size_t one = 0; one < runs.size(); ++one) {
    const double error = runs[one]->control_error();
    sizes.push_back(std::abs(error));
    if (std::abs(error) > std::abs(out.worst_error) || one == 0) {
      out.worst_error = error;
      const ExecutedRow& row = runs[one]->row;
      out.worst =
          of_all ? absl::StrCat(RunName(row), ", pp ", row.pp) : RunName(row);
    }
    for (size_t two = one + 1; two < runs.size(); ++two) {
      if (runs[one]->row.pp != runs[two]->row.pp) continue;
      const double first_s = *runs[one]->control_s;
      const double second_s = *runs[two]->control_s;
      if (std::max(first_s, second_s) / std::min(first_s, second_s) - 1 <
          kTieShare) {
        ++out.ties;
        continue;
      }
      ++out.pairs;
      balance += (first_s < second_s) ==
                         (runs[one]->row.executed_s < runs[two]->row.executed_s)
                     ? 1
                     : -1;
    }
  }
  out.median_error = Median(std::move(sizes));
  if (out.pairs > 0) out.tau = static_cast<double>(balance) / out.pairs;
  return out;
}

}  // namespace

absl::StatusOr<double> ControlStep(const ExecutedRow& row) {
  ScheduleParams params;
  params.pp = row.pp;
  params.vpp = row.vpp;
  params.microbatches = row.microbatches;
  params.slices = row.slices;
  params.costs.given = true;  // F = B = W = 1
  PW_ASSIGN_OR_RETURN(Schedule built, BuildSchedule(row.schedule, params));
  LowerOptions options;
  PW_ASSIGN_OR_RETURN(options.costs, CostsOf(row, built.stages()));
  if (built.update_every == 0) {
    options.optimizer = OptimizerMode::kSynchronised;
  }
  PW_ASSIGN_OR_RETURN(
      const Program program,
      Lower(std::make_shared<const Schedule>(std::move(built)), options));
  PW_ASSIGN_OR_RETURN(const RunSummary run, RunFast(program, {}));
  if (!(run.iteration_s() > 0)) {
    return BadValue("layers", row.layers, "at least one layer");
  }
  return run.iteration_s();
}

void AddControl(RunsSummary* summary) {
  std::vector<double> scales;
  for (RanksSummary& size : summary->sizes) {
    for (RepeatedRun& run : size.runs) {
      const absl::StatusOr<double> step = ControlStep(run.row);
      if (!step.ok()) {
        summary->without_control.push_back(
            absl::StrCat(RunName(run.row), ", pp ", run.row.pp, ": ",
                         step.status().message()));
        continue;
      }
      run.control_s = *step;
      scales.push_back(run.row.executed_s / *step);
    }
  }
  // A scale that is fitted to one run or two says nothing of them.
  if (scales.size() < kFewestForControl) {
    for (RanksSummary& size : summary->sizes) {
      for (RepeatedRun& run : size.runs) run.control_s.reset();
    }
    return;
  }
  const double scale = Median(std::move(scales));
  Runs all;
  for (RanksSummary& size : summary->sizes) {
    Runs runs;
    for (RepeatedRun& run : size.runs) {
      if (!run.control_s) continue;
      *run.control_s *= scale;
      runs.push_back(&run);
      all.push_back(&run);
    }
    if (!runs.empty()) size.control = SummaryOf(runs, false);
  }
  summary->control = SummaryOf(all, true);
}

}  // namespace pipewright
