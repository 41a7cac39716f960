#include "sim/base/json.h"
#include "sim/reproduce/validation.h"

namespace pipewright {
namespace {

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
  return {{"counted", summary.counted},
          {"refused", summary.refused},
          {"excluded", summary.excluded},
          {"do_not_fit", summary.do_not_fit},
          {"kinds", kinds},
          {"orders", orders},
          {"intervals", intervals(summary.interval)},
          {"intervals_with_dropped",
           summary.dropped > 0 ? intervals(summary.interval_with_dropped)
                               : Json()}};
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
