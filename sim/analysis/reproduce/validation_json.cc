// Results as JSON, and what differs from an earlier `reproduce --json`.
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/analysis/reproduce/validation.h"
#include "sim/base/json.h"

namespace pipewright {
namespace {

// Two engines and two compilers differ by less.
constexpr double kSame = 1e-9;

struct OldRow {
  std::optional<double> simulated;
  bool seen = false;
};

// Paper, setting and schedule, and which of equal ones.
using Key = std::pair<std::string, int>;

std::string WordsOf(const std::string& paper, const std::string& setting,
                    const std::string& schedule) {
  return absl::StrCat(paper, "\n", setting, "\n", schedule);
}

absl::Status NoReproduction() {
  return absl::InvalidArgumentError(
      "no output of reproduce --json; allowed: an object with experiments, "
      "whose rows have setting, schedule and simulated");
}

absl::StatusOr<std::map<Key, OldRow>> ReadOld(absl::string_view text) {
  const Json old = ParseJson(text).value_or(Json());
  if (!old.is_object() || !old.contains("experiments") ||
      !old["experiments"].is_array()) {
    return NoReproduction();
  }
  std::map<Key, OldRow> rows;
  std::map<std::string, int> equal;
  const auto is_text = [](const Json& object, const char* key) {
    return object.is_object() && object.contains(key) &&
           object[key].is_string();
  };
  for (const Json& paper : old["experiments"]) {
    if (!is_text(paper, "name") || !paper.contains("rows") ||
        !paper["rows"].is_array()) {
      return NoReproduction();
    }
    for (const Json& row : paper["rows"]) {
      if (!is_text(row, "setting") || !is_text(row, "schedule") ||
          !row.contains("simulated")) {
        return NoReproduction();
      }
      const std::string words = WordsOf(
          paper["name"].text(), row["setting"].text(), row["schedule"].text());
      OldRow each;
      if (row["simulated"].is_number()) {
        each.simulated = row["simulated"].get<double>();
      }
      rows.emplace(Key(words, equal[words]++), each);
    }
  }
  return rows;
}

bool IsSame(const std::optional<double>& before,
            const std::optional<double>& after) {
  if (!before || !after) return before.has_value() == after.has_value();
  return std::abs(*before - *after) <=
         kSame * std::max(std::abs(*before), std::abs(*after));
}

std::string Shown(const std::optional<double>& value) {
  return value ? absl::StrFormat("%.4g", *value) : "-";
}

std::string ErrorOf(const std::optional<double>& value, double published) {
  return value && published != 0
             ? absl::StrFormat("%+.1f %%", 100 * (*value / published - 1))
             : "-";
}

Json TextOrNull(const std::string& text) {
  return text.empty() ? Json() : Json(text);
}

Json FactsToJson(const StepFacts& facts) {
  return {{"kind", TextOrNull(facts.kind)},
          {"group", facts.group},
          {"counts", facts.counts()},
          {"excluded", TextOrNull(facts.excluded)},
          {"refused", TextOrNull(facts.refused)},
          {"note", TextOrNull(facts.note)},
          {"interval_s",
           facts.high > 0 ? Json::array({facts.low, facts.high}) : Json()},
          {"needed_bytes",
           facts.needed_bytes > 0 ? Json(facts.needed_bytes) : Json()},
          {"reserved_bytes",
           facts.reserved_bytes > 0 ? Json(facts.reserved_bytes) : Json()},
          {"fits", facts.fits}};
}

}  // namespace

Json PaperToJson(const PaperResult& result) {
  Json rows = Json::array();
  for (const Comparison& row : result.rows) {
    const bool known = row.has_estimate();
    Json each = {
        {"setting", row.setting},
        {"schedule", row.schedule},
        {row.in_paper ? "published" : "reference", NumberOf(row.published)},
        {"simulated", known ? Json(row.simulated) : Json()},
        {"rounded", known ? Json(NumberOf(row.rounded)) : Json()},
        {"rule", RuleName(row.rule)},
        {"tolerance", row.tolerance},
        {"in_paper", row.in_paper},
        {"match", known && row.matches()}};
    if (row.step) each["step"] = FactsToJson(*row.step);
    rows.push_back(std::move(each));
  }
  return {{"name", result.paper->name},
          {"metric", result.paper->metric},
          {"rows", rows}};
}

Json StepSummaryToJson(const StepSummary& summary) {
  Json kinds = Json::array();
  for (size_t index = 0; index < summary.kinds.size(); ++index) {
    const KindSummary& kind = summary.kinds[index];
    const StepGoal& goal = StepGoals()[index];
    kinds.push_back(
        {{"kind", kind.kind},
         {"rows", kind.rows},
         {"mean", kind.mean},
         {"mean_size", kind.absolute},
         {"worst", kind.worst},
         {"worst_row", TextOrNull(kind.worst_row)},
         {"goal_mean", goal.mean},
         {"goal_worst", goal.worst > 0 ? Json(goal.worst) : Json()}});
  }
  Json orders = Json::array();
  for (const auto* list : {&summary.orders, &summary.small_orders}) {
    for (const OrderSummary& order : *list) {
      orders.push_back({{"group", order.group},
                        {"rows", order.rows},
                        {"pairs", order.pairs},
                        {"tau", order.pairs > 0 ? Json(order.tau) : Json()}});
    }
  }
  const auto intervals = [](const IntervalSummary& interval) -> Json {
    return {{"rows", interval.rows},
            {"inside", interval.inside},
            {"half_width", interval.half_width},
            {"score", interval.score},
            {"constant", interval.constant},
            {"constant_score", interval.constant_score}};
  };
  Json left_out = Json::array();
  for (const LeftOutSummary& kind : summary.left_out) {
    Json row = {{"kind", kind.kind},
                {"rows", kind.rows},
                {"least", kind.least},
                {"inside", kind.inside},
                {"half_width", kind.half_width}};
    for (int family = 0; family < kNumStepFamilies; ++family) {
      row[kStepFamilies[family]] = {
          {"inside", kind.left_out[family].inside},
          {"half_width", kind.left_out[family].half_width}};
    }
    left_out.push_back(std::move(row));
  }
  return {{"counted", summary.counted},
          {"refused", summary.refused},
          {"excluded", summary.excluded},
          {"do_not_fit", summary.do_not_fit},
          {"kinds", kinds},
          {"orders", orders},
          {"intervals", intervals(summary.interval)},
          {"left_out", left_out},
          {"excluded_with_interval", summary.excluded_rows},
          {"excluded_inside", summary.excluded_inside},
          {"intervals_with_dropped",
           summary.dropped > 0 ? intervals(summary.interval_with_dropped)
                               : Json()}};
}

absl::StatusOr<ValidationDiff> DiffValidation(
    absl::string_view old_json, const std::vector<PaperResult>& results) {
  absl::StatusOr<std::map<Key, OldRow>> old = ReadOld(old_json);
  if (!old.ok()) return old.status();
  ValidationDiff diff;
  std::map<std::string, int> equal;
  std::map<std::string, ValidationDiff::Kind> kinds;
  for (const PaperResult& result : results) {
    for (const Comparison& row : result.rows) {
      const std::string words =
          WordsOf(result.paper->name, row.setting, row.schedule);
      ChangedRow change = {.paper = result.paper->name,
                           .setting = row.setting,
                           .schedule = row.schedule,
                           .published = NumberOf(row.published)};
      if (row.has_estimate()) change.after = row.simulated;
      const auto before = old->find(Key(words, equal[words]++));
      if (before != old->end()) {
        ++diff.compared;
        change.before = before->second.simulated;
      }
      if (row.step && row.step->counts() && change.before) {
        ValidationDiff::Kind& kind = kinds[row.step->kind];
        ++kind.rows;
        kind.before += std::abs(*change.before / change.published - 1);
        kind.after += std::abs(*change.after / change.published - 1);
      }
      if (!IsSame(change.before, change.after)) {
        diff.changed.push_back(std::move(change));
      }
    }
  }
  for (const StepGoal& goal : StepGoals()) {
    const auto kind = kinds.find(goal.kind);
    if (kind == kinds.end()) continue;
    ValidationDiff::Kind mean = kind->second;
    mean.kind = goal.kind;
    mean.before /= mean.rows;
    mean.after /= mean.rows;
    diff.kinds.push_back(std::move(mean));
  }
  return diff;
}

std::string DiffToText(const ValidationDiff& diff) {
  std::string text = absl::StrFormat("%d of %d numbers have changed\n",
                                     diff.changed.size(), diff.compared);
  for (const ChangedRow& row : diff.changed) {
    absl::StrAppendFormat(
        &text, "%-16s %-44s %-52s %10s -> %-10s %9s -> %s\n", row.paper,
        row.setting, row.schedule, Shown(row.before), Shown(row.after),
        ErrorOf(row.before, row.published), ErrorOf(row.after, row.published));
  }
  for (const ValidationDiff::Kind& kind : diff.kinds) {
    absl::StrAppendFormat(
        &text, "%s: mean size of the error %.1f -> %.1f %% of %d steps\n",
        kind.kind, 100 * kind.before, 100 * kind.after, kind.rows);
  }
  return text;
}

Json DiffToJson(const ValidationDiff& diff) {
  Json rows = Json::array();
  const auto number = [](const std::optional<double>& value) {
    return value ? Json(*value) : Json();
  };
  for (const ChangedRow& row : diff.changed) {
    rows.push_back({{"name", row.paper},
                    {"setting", row.setting},
                    {"schedule", row.schedule},
                    {"published", row.published},
                    {"before", number(row.before)},
                    {"after", number(row.after)}});
  }
  Json kinds = Json::array();
  for (const ValidationDiff::Kind& kind : diff.kinds) {
    kinds.push_back({{"kind", kind.kind},
                     {"rows", kind.rows},
                     {"before", kind.before},
                     {"after", kind.after}});
  }
  return {{"compared", diff.compared}, {"changed", rows}, {"kinds", kinds}};
}

}  // namespace pipewright
