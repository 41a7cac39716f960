// What the checks of an executed run say, in words and as a status.
#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "sim/cli/execute_report.h"

namespace pipewright {

absl::Status Differs(absl::string_view from) {
  return absl::DataLossError(
      absl::StrCat("losses, gradients or weights differ from the ", from));
}

absl::Status VerdictOf(const ExecuteReport& report) {
  if (report.check && !report.check->ok()) return Differs("sequential run");
  if (report.reference && !report.reference->ok()) {
    return Differs("float64 reference");
  }
  return absl::OkStatus();
}

std::string ReferenceInWords(const ReferenceCheck& check) {
  std::string words = absl::StrFormat(
      "%s the float64 reference: loss of the first step to %.1e, gradients to "
      "%.1e (%s)",
      check.ok() ? "agree with" : "DIFFER from", check.loss_error(),
      check.gradient_error, check.worst_gradient);
  if (check.weight_error) {
    absl::StrAppendFormat(&words, ", weights to %.1e of their step (%s)",
                          *check.weight_error, check.worst_weight);
  }
  absl::StrAppendFormat(&words, "; allowed %.0e", check.tolerance);
  if (check.missing > 0) {
    absl::StrAppend(&words, "; ", check.missing,
                    " stages have not told theirs");
  }
  return words;
}

std::string CheckInWords(const ExecuteReport& report) {
  const TrainingCheck& check = *report.check;
  const bool all = check.steps_in_full.size() == check.losses.size();
  std::string words = absl::StrCat(
      check.ok() ? "agree with" : "DIFFER from", " the sequential run",
      report.report.weight_versions.empty() ? ""
                                            : " on the same weight versions",
      ": ");
  if (check.same_bits) {
    absl::StrAppend(&words, "bit for bit, losses",
                    all ? ", gradients and weights of every step"
                        : " of every step, gradients and weights");
  } else {
    absl::StrAppendFormat(
        &words,
        "losses to %.1e, gradients of the first step to %.1e, of all to %.1e, "
        "weights to %.1e of what the optimizer has moved them%s",
        check.loss_error, check.first_gradient_error, check.gradient_error,
        check.weight_error,
        check.bits_owed    ? " (the same bits are owed)"
        : check.same_order ? ""
                           : " (added up in another order)");
  }
  if (!all) {
    absl::StrAppend(&words, " of step",
                    check.steps_in_full.size() == 1 ? " " : "s ",
                    absl::StrJoin(check.steps_in_full, " and "),
                    check.same_bits ? "" : " only");
  }
  if (check.missing > 0) {
    absl::StrAppend(&words, "; ", check.missing,
                    " stages have not told theirs");
  }
  return words;
}

StepsInside CountInside(const ExecuteReport& report,
                        const std::vector<double>& step_s) {
  StepsInside count;
  for (size_t step = 1; step < step_s.size(); ++step) {
    ++count.steps;
    count.inside += step_s[step] >= report.predicted_interval->low_s &&
                            step_s[step] <= report.predicted_interval->high_s
                        ? 1
                        : 0;
  }
  return count;
}

std::string IntervalInWords(const ExecuteReport& report,
                            const std::vector<double>& step_s) {
  const StepsInside count = CountInside(report, step_s);
  std::string words =
      IntervalText(*report.predicted_interval, *report.predicted_iteration_s);
  if (count.steps > 0) {
    absl::StrAppend(&words, "; ", count.inside, " of ", count.steps,
                    " steps behind the first inside");
  }
  return words;
}

std::optional<double> PeakErrorOf(const ExecuteReport& report, size_t rank) {
  if (report.predicted_peak_bytes.empty() || report.peak_bytes[rank] <= 0) {
    return std::nullopt;
  }
  return report.peak_bytes[rank] / report.predicted_peak_bytes[rank] - 1;
}

std::optional<double> HostPeakErrorOf(const ExecuteReport& report,
                                      size_t rank) {
  const std::vector<double>& predicted = report.predicted_peak_host_bytes;
  if (predicted.empty() || predicted[rank] <= 0 ||
      report.peak_bytes[rank] <= 0) {
    return std::nullopt;
  }
  return report.peak_host_bytes[rank] / predicted[rank] - 1;
}

bool HasHostPeaks(const ExecuteReport& report) {
  const auto any = [](const std::vector<double>& bytes) {
    return std::any_of(bytes.begin(), bytes.end(),
                       [](double each) { return each > 0; });
  };
  return !report.peak_host_bytes.empty() &&
         (any(report.peak_host_bytes) || any(report.predicted_peak_host_bytes));
}

}  // namespace pipewright
