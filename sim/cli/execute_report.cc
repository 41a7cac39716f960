#include "sim/cli/execute_report.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sim/base/quantity.h"

namespace pipewright {
namespace {

double ErrorOf(const ExecuteReport& report) {
  return *report.predicted_iteration_s / report.report.iteration_s - 1;
}

}  // namespace

std::string ClockName(ClockKind clock) {
  switch (clock) {
    case ClockKind::kVirtual:
      return "virtual";
    case ClockKind::kPaced:
      return "paced";
    case ClockKind::kReal:
      return "real";
  }
  return "";
}

std::string NotValidated(ClockKind clock) {
  switch (clock) {
    case ClockKind::kVirtual:
      return "links and copies take the model's time without contention; "
             "passes take the CPU time of their own thread, so that what they "
             "do to each other is left out";
    case ClockKind::kPaced:
      return "passes only wait: no kernel has run, no gradient was computed; "
             "links are the model's";
    case ClockKind::kReal:
      return "threads of one machine stand for devices, its memory for their "
             "links";
  }
  return "";
}

std::string ExecuteReportToJson(const ExecuteReport& report,
                                const std::vector<double>& step_s) {
  using Json = nlohmann::ordered_json;
  Json out = Json::parse(ReportToJson(report.report));
  Json& execute = out["execute"];
  execute["clock"] = ClockName(report.clock);
  execute["transport"] = report.transport;
  execute["device"] = report.device;
  execute["libraries"] = report.libraries;
  execute["steps"] = report.steps;
  execute["step_s"] = step_s;
  execute["predicted_iteration_s"] = report.predicted_iteration_s
                                         ? Json(*report.predicted_iteration_s)
                                         : Json();
  execute["error"] =
      report.predicted_iteration_s ? Json(ErrorOf(report)) : Json();
  execute["predicted_peak_activations"] = report.predicted_peak_activations;
  execute["peak_bytes"] = report.peak_bytes;
  execute["resident_bytes"] = report.resident_bytes;
  execute["wall_s"] = report.wall_s;
  if (report.clock == ClockKind::kPaced) execute["late_s"] = report.late_s;
  if (report.clock == ClockKind::kReal) {
    execute["preemptions"] = report.preemptions;
  }
  if (report.check) {
    const TrainingCheck& check = *report.check;
    execute["check"] = {{"agrees", check.ok()},
                        {"same_order", check.same_order},
                        {"same_bits", check.same_bits},
                        {"loss_error", check.loss_error},
                        {"first_gradient_error", check.first_gradient_error},
                        {"gradient_error", check.gradient_error},
                        {"weight_error", check.weight_error},
                        {"tolerance", check.tolerance},
                        {"later_tolerance", check.later_tolerance},
                        {"losses", check.losses},
                        {"sequential_losses", check.sequential_losses}};
  } else {
    execute["check"] = nullptr;
  }
  execute["not_validated"] = NotValidated(report.clock);
  return out.dump(2);
}

std::string ExecuteReportToText(const ExecuteReport& report,
                                const std::vector<double>& step_s) {
  std::string text = ReportToText(report.report);
  absl::StrAppend(&text, "\nexecuted      ", report.steps, " steps, ",
                  ClockName(report.clock), " clock, ", report.transport,
                  report.device.empty() ? "" : ", ", report.device,
                  report.libraries.empty() ? "" : " (", report.libraries,
                  report.libraries.empty() ? "" : ")", "\n");
  std::vector<std::string> steps;
  for (const double seconds : step_s) steps.push_back(FormatSeconds(seconds));
  absl::StrAppend(&text, "steps         ");
  for (const std::string& step : steps) absl::StrAppend(&text, step, "  ");
  absl::StrAppend(&text, "\n");
  if (report.predicted_iteration_s) {
    absl::StrAppendFormat(
        &text, "predicted     %s a step by the %s engine, %+.2f %%\n",
        FormatSeconds(*report.predicted_iteration_s), report.predicted_by,
        100 * ErrorOf(report));
  }
  if (report.check) {
    const TrainingCheck& check = *report.check;
    absl::StrAppendFormat(
        &text, "gradients     %s the sequential run%s: %s\n",
        check.ok() ? "agree with" : "DIFFER from",
        report.report.weight_versions.empty() ? ""
                                              : " on the same weight versions",
        check.same_bits
            ? "bit for bit, losses, gradients and weights of every step"
            : absl::StrFormat(
                  "losses to %.1e, gradients of the first step to %.1e, of all "
                  "to %.1e, weights to %.1e%s",
                  check.loss_error, check.first_gradient_error,
                  check.gradient_error, check.weight_error,
                  check.same_order ? "" : " (added up in another order)"));
    absl::StrAppend(&text, "loss         ");
    for (const double loss : check.losses) {
      absl::StrAppendFormat(&text, " %.6f", loss);
    }
    absl::StrAppend(&text, "\n");
  }
  for (size_t rank = 0; rank < report.peak_bytes.size(); ++rank) {
    absl::StrAppendFormat(
        &text, "%s%s of it weights and optimizer %s\n",
        rank == 0 ? "memory peak   " : "              ",
        absl::StrCat("rank ", rank, ": ", FormatBytes(report.peak_bytes[rank])),
        FormatBytes(report.resident_bytes[rank]));
  }
  if (report.clock == ClockKind::kPaced) {
    absl::StrAppend(&text, "woke up late  by ", FormatSeconds(report.late_s),
                    " at most\n");
  }
  if (report.clock == ClockKind::kReal) {
    absl::StrAppend(&text, "preempted     ", report.preemptions,
                    " times; above 0 the times are not to be compared\n");
  }
  absl::StrAppend(&text, "not validated ", NotValidated(report.clock), "\n");
  return text;
}

}  // namespace pipewright
