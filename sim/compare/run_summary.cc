#include "sim/compare/run_summary.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/status.h"

namespace pipewright {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

double MedianMagnitude(const std::vector<ExecutedRow>& rows) {
  std::vector<double> sizes;
  for (const ExecutedRow& row : rows) sizes.push_back(std::abs(row.error()));
  std::sort(sizes.begin(), sizes.end());
  const size_t middle = sizes.size() / 2;
  return sizes.size() % 2 == 1 ? sizes[middle]
                               : (sizes[middle - 1] + sizes[middle]) / 2;
}

const ExecutedRow& Worst(const std::vector<ExecutedRow>& rows) {
  return *std::max_element(rows.begin(), rows.end(),
                           [](const ExecutedRow& one, const ExecutedRow& two) {
                             return std::abs(one.error()) <
                                    std::abs(two.error());
                           });
}

void Rank(RanksSummary* size) {
  int balance = 0;
  for (size_t one = 0; one < size->rows.size(); ++one) {
    for (size_t two = one + 1; two < size->rows.size(); ++two) {
      const ExecutedRow& fast = size->rows[one];
      const ExecutedRow& slow = size->rows[two];
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

nlohmann::ordered_json PairsJson(const Pairs& pairs) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const auto& [one, two] : pairs) out.push_back({one, two});
  return out;
}

}  // namespace

std::string RunName(const ExecutedRow& row) {
  return row.even() ? row.schedule : absl::StrCat(row.schedule, " (uneven)");
}

absl::StatusOr<RunsSummary> SummarizeRuns(std::vector<ExecutedRow> rows) {
  if (rows.empty()) {
    return BadValue("--summary", "a table without rows",
                    "at least one run of execute --row");
  }
  RunsSummary out;
  out.runs = static_cast<int>(rows.size());
  out.median_error = MedianMagnitude(rows);
  const ExecutedRow& worst = Worst(rows);
  out.worst_error = worst.error();
  out.worst = absl::StrCat(RunName(worst), ", pp ", worst.pp);
  out.shortest_pass_s = rows[0].shortest_pass_s;
  out.first_date = out.last_date = rows[0].date;
  std::map<int, RanksSummary> sizes;
  for (ExecutedRow& row : rows) {
    out.shortest_pass_s = std::min(out.shortest_pass_s, row.shortest_pass_s);
    out.wall_s += row.wall_s;
    out.same_bits += row.gradients == "bits" ? 1 : 0;
    out.agree += row.gradients_agree() ? 1 : 0;
    out.unchecked += row.gradients == "unchecked" ? 1 : 0;
    out.peaks_agree += row.peaks_agree() ? 1 : 0;
    AddOnce(row.device, &out.devices);
    AddOnce(row.libraries, &out.libraries);
    AddOnce(row.profile, &out.profiles);
    AddOnce(row.version, &out.versions);
    AddOnce(row.clock, &out.clocks);
    out.first_date = std::min(out.first_date, row.date);
    out.last_date = std::max(out.last_date, row.date);
    RanksSummary& size = sizes[row.pp];
    size.pp = row.pp;
    size.rows.push_back(std::move(row));
  }
  for (auto& [pp, size] : sizes) {
    std::stable_sort(size.rows.begin(), size.rows.end(),
                     [](const ExecutedRow& one, const ExecutedRow& two) {
                       return one.predicted_s < two.predicted_s;
                     });
    size.median_error = MedianMagnitude(size.rows);
    size.worst_error = Worst(size.rows).error();
    size.worst = RunName(Worst(size.rows));
    Rank(&size);
    out.sizes.push_back(std::move(size));
  }
  return out;
}

std::string RunsToText(const RunsSummary& summary) {
  std::string text;
  for (const RanksSummary& size : summary.sizes) {
    absl::StrAppendFormat(&text, "pp %d%33s%12s%9s   %-10s %s\n", size.pp,
                          "predicted", "executed", "error", "gradients",
                          "peak activations");
    for (const ExecutedRow& row : size.rows) {
      absl::StrAppendFormat(
          &text, "  %-26s%8.2f ms %8.2f ms %+7.2f %%   %-10s %s\n",
          RunName(row), row.predicted_s * 1e3, row.executed_s * 1e3,
          row.error() * 100, row.gradients, row.peak_activations);
    }
    absl::StrAppendFormat(
        &text,
        "  error %.2f %% in the median, %+.2f %% at worst (%s); order of %d "
        "pairs: tau %.3f, %d within %.0f %% left out\n\n",
        size.median_error * 100, size.worst_error * 100, size.worst, size.pairs,
        size.tau, size.ties.size(), kTieShare * 100);
  }
  absl::StrAppendFormat(
      &text,
      "%d runs: error %.2f %% in the median, %+.2f %% at worst (%s); gradients "
      "of %d agree, of %d bit for bit, %d unchecked; peak activations of %d as "
      "predicted; passes of %.1f ms and more\n",
      summary.runs, summary.median_error * 100, summary.worst_error * 100,
      summary.worst, summary.agree, summary.same_bits, summary.unchecked,
      summary.peaks_agree, summary.shortest_pass_s * 1e3);
  return text;
}

std::string RunsToJson(const RunsSummary& summary) {
  using Json = nlohmann::ordered_json;
  Json out = {{"runs", summary.runs},
              {"median_error", summary.median_error},
              {"worst_error", summary.worst_error},
              {"worst", summary.worst},
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
    for (const ExecutedRow& row : size.rows) {
      rows.push_back({{"schedule", row.schedule},
                      {"vpp", row.vpp},
                      {"microbatches", row.microbatches},
                      {"microbatch_size", row.microbatch_size},
                      {"sequence", row.sequence},
                      {"slices", row.slices},
                      {"layers", row.layers},
                      {"predicted_s", row.predicted_s},
                      {"executed_s", row.executed_s},
                      {"error", row.error()},
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
                     {"rows", std::move(rows)}});
  }
  out["sizes"] = std::move(sizes);
  return out.dump(2);
}

}  // namespace pipewright
