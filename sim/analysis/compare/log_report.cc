#include "sim/analysis/compare/log_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/base/error_parts.h"
#include "sim/base/json.h"
#include "sim/base/quantity.h"
#include "sim/base/status.h"
#include "sim/report/report.h"

namespace pipewright {
namespace {

std::string Plain(double value) { return absl::StrFormat("%.2f", value); }

// A quantity that both sides may have.
struct LogQuantity {
  const char* name;  // in the text
  const char* key;   // in JSON
  std::string (*text)(double);
  std::optional<LogSpread> spread;
  std::optional<double> measured;
  std::optional<double> predicted;
};

std::vector<LogQuantity> QuantitiesOf(const TrainingLog& log,
                                      const LogSummary& summary,
                                      const PredictedStep* predicted) {
  const auto median = [](const std::optional<LogSpread>& spread) {
    return spread ? std::optional<double>(spread->median) : std::nullopt;
  };
  std::vector<LogQuantity> all = {
      {"step", "step_s", FormatSeconds, summary.step_s, {}, {}},
      {"tokens/s/device",
       "tokens_per_s_per_device",
       Plain,
       summary.tokens_per_s,
       {},
       {}},
      {"TFLOP/s/device", "tflops_per_device", Plain, summary.tflops, {}, {}}};
  for (LogQuantity& quantity : all) quantity.measured = median(quantity.spread);
  // Allocated bytes are what a model predicts; reserved ones include
  // fragmentation, and stand in only where a log has no others.
  const bool allocated = log.allocated_bytes.has_value();
  all.push_back({allocated ? "peak memory" : "peak memory, reserved",
                 "peak_memory_bytes",
                 FormatBytes,
                 {},
                 allocated ? log.allocated_bytes : log.reserved_bytes,
                 {}});
  if (predicted != nullptr) {
    all[0].predicted = predicted->step_s;
    all[1].predicted = predicted->tokens_per_s;
    all[2].predicted = predicted->tflops;
    all[3].predicted = predicted->memory_bytes;
  }
  return all;
}

Json NumberOrNull(const std::optional<double>& value) {
  return value ? Json(*value) : Json();
}

}  // namespace

absl::StatusOr<PredictedStep> PredictionOfReport(absl::string_view json,
                                                 const std::string& source) {
  const absl::StatusOr<Json> report = ParseJson(json);
  if (!report.ok()) return InFile(source, 0, report.status());
  const auto number = [&](const char* key) {
    const Json* const value = report->find(key);
    return value != nullptr && value->is_number() && value->get<double>() > 0
               ? std::optional<double>(value->get<double>())
               : std::nullopt;
  };
  PredictedStep out = {.source = source};
  const std::optional<double> step = number("iteration_s");
  if (!step) {
    return InFile(source, 0,
                  MissingValue("iteration_s",
                               "the report of simulate --json, or a trace of "
                               "simulate --trace"));
  }
  out.step_s = *step;
  const Json* const unit = report->find("time_unit");
  out.in_units = unit != nullptr && *unit == TimeUnitName(/*in_units=*/true);
  out.tflops = number("tflops_per_device");
  const std::optional<double> tokens = number("tokens_per_s");
  const std::optional<double> devices = number("devices");
  if (tokens && devices) out.tokens_per_s = *tokens / *devices;
  const Json* const peaks = report->find("peak_memory_bytes");
  if (peaks != nullptr && peaks->is_array()) {
    for (const Json& peak : *peaks) {
      if (!peak.is_number()) continue;
      out.memory_bytes =
          std::max(out.memory_bytes.value_or(0), peak.get<double>());
    }
  }
  return out;
}

PredictedStep PredictionOfTrace(const ReadTrace& trace) {
  std::map<int32_t, double> ends;  // by iteration
  double start_s = trace.ops.empty() ? 0 : trace.ops[0].op.start_s;
  for (const ReadOp& each : trace.ops) {
    double& end = ends[each.op.iteration];
    end = std::max(end, each.op.end_s);
    start_s = std::min(start_s, each.op.start_s);
  }
  PredictedStep out = {.source = trace.source};
  if (ends.empty()) return out;
  const auto last = ends.rbegin();
  out.step_s =
      last->second - (ends.size() > 1 ? std::next(last)->second : start_s);
  return out;
}

double StepError(const PredictedStep& predicted, const LogSummary& summary) {
  return predicted.step_s / summary.step_s->median - 1;
}

std::string LogToText(const TrainingLog& log, const LogSummary& summary,
                      const PredictedStep* predicted) {
  const std::vector<LogQuantity> all = QuantitiesOf(log, summary, predicted);
  std::string text =
      absl::StrFormat("%s, log of %s: %d of %d lines with a step\n", log.source,
                      log.program, summary.steps, log.steps.size());
  if (!summary.warm_up.empty()) {
    absl::StrAppend(&text, "left out at the start, as warm-up: ",
                    absl::StrJoin(summary.warm_up, ", "), "\n");
  }
  if (predicted != nullptr) {
    absl::StrAppendFormat(&text, "\n%-22s%14s%14s%10s\n", "", "predicted",
                          "measured", "error");
    for (const LogQuantity& quantity : all) {
      if (!quantity.predicted && !quantity.measured) continue;
      const auto cell = [&](const std::optional<double>& value) {
        return value ? quantity.text(*value) : "unknown";
      };
      absl::StrAppendFormat(&text, "%-22s%14s%14s", quantity.name,
                            cell(quantity.predicted), cell(quantity.measured));
      if (quantity.predicted && quantity.measured) {
        absl::StrAppendFormat(
            &text, "%+8.2f %%",
            100 * (*quantity.predicted / *quantity.measured - 1));
      }
      absl::StrAppend(&text, "\n");
    }
  }
  absl::StrAppendFormat(&text, "\n%-22s%14s%14s%14s%14s%14s\n", "measured",
                        "median", "mean", "deviation", "least", "most");
  for (const LogQuantity& quantity : all) {
    if (!quantity.spread) continue;
    const LogSpread& spread = *quantity.spread;
    absl::StrAppendFormat(&text, "%-22s", quantity.name);
    for (const double value : {spread.median, spread.mean, spread.deviation,
                               spread.least, spread.most}) {
      absl::StrAppendFormat(&text, "%14s", quantity.text(value));
    }
    absl::StrAppend(&text, "\n");
  }
  for (const auto& [name, bytes] : {std::pair("allocated", log.allocated_bytes),
                                    {"reserved", log.reserved_bytes}}) {
    if (!bytes) continue;
    absl::StrAppendFormat(&text, "%-22s%14s at most\n",
                          absl::StrCat("memory, ", name), FormatBytes(*bytes));
  }
  for (const LoggedStep& step : summary.slow) {
    absl::StrAppendFormat(
        &text, "slow: step %d, %s, %.2f times the median (line %d)\n",
        step.step, FormatSeconds(*step.seconds),
        *step.seconds / summary.step_s->median, step.line);
  }
  return text;
}

std::string LogToJson(const TrainingLog& log, const LogSummary& summary,
                      const PredictedStep* predicted) {
  const std::vector<LogQuantity> all = QuantitiesOf(log, summary, predicted);
  Json measured = {{"source", log.source},
                   {"program", log.program},
                   {"steps", summary.steps},
                   {"warm_up", summary.warm_up}};
  for (const LogQuantity& quantity : all) {
    if (!quantity.spread) continue;
    const LogSpread& spread = *quantity.spread;
    measured[quantity.key] = Json({{"count", spread.count},
                                   {"median", spread.median},
                                   {"mean", spread.mean},
                                   {"deviation", spread.deviation},
                                   {"least", spread.least},
                                   {"most", spread.most}});
  }
  measured["allocated_bytes"] = NumberOrNull(log.allocated_bytes);
  measured["reserved_bytes"] = NumberOrNull(log.reserved_bytes);
  Json slow = Json::array();
  for (const LoggedStep& step : summary.slow) {
    slow.push_back(
        {{"step", step.step}, {"line", step.line}, {"seconds", *step.seconds}});
  }
  measured["slow"] = std::move(slow);
  measured["warnings"] = log.warnings;
  if (predicted == nullptr) return measured.dump(2);
  Json out = {{"simulated", predicted->source}};
  for (const LogQuantity& quantity : all) {
    out[quantity.key] =
        Json({{"simulated", NumberOrNull(quantity.predicted)},
              {"measured", NumberOrNull(quantity.measured)},
              {"error", quantity.predicted && quantity.measured
                            ? Json(*quantity.predicted / *quantity.measured - 1)
                            : Json()}});
  }
  out["log"] = std::move(measured);
  return out.dump(2);
}

}  // namespace pipewright
