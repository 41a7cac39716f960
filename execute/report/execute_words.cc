// What a run of `pipewright execute` shows and does not show, in words.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "execute/report/execute_report.h"
#include "sim/base/quantity.h"
#include "sim/report/format.h"

namespace pipewright {
namespace {

// The tolerance for fp32.
constexpr double kFineTolerance = 1e-3;

std::string MissingInWords(int missing) {
  if (missing == 0) return "";
  return absl::StrCat("; ", missing, " stages have not told theirs");
}

}  // namespace

const std::vector<std::string>& ClockNames() {
  static const std::vector<std::string> names = {"virtual", "paced", "real"};
  return names;
}

std::string ClockName(ClockKind clock) {
  return ClockNames()[static_cast<size_t>(clock)];
}

std::string NotValidated(const ExecuteReport& report) {
  const bool real = report.clock == ClockKind::kReal;
  const bool replays = report.replay.has_value();
  std::vector<std::string> texts;
  const auto say = [&texts](bool holds, absl::string_view text) {
    if (holds) texts.emplace_back(text);
  };
  say(replays,
      "ranks have run alone, each with made-up data in place of what others "
      "send: no loss and no gradient is checked");
  say(replays,
      "what comes from others, and every link and collective, takes the "
      "program's time without contention");
  say(report.clock == ClockKind::kVirtual,
      "links and copies take the model's time without contention; passes take "
      "the CPU time of their own thread, so that what they do to each other is "
      "left out");
  say(report.clock == ClockKind::kPaced,
      "passes only wait: no kernel has run, no gradient was computed; links "
      "are the model's");
  say(real, replays ? "devices that compute at the same time (power, memory of "
                      "the host)"
                    : "threads of one machine stand for devices, its memory "
                      "for their links");
  say(report.one_at_a_time && !replays,
      real ? "one rank computes at a time: no overlap of ranks, the times are "
             "those of ranks that take turns"
           : "one rank computes at a time: how they overlap is computed");
  say(report.green_contexts,
      "each rank has a part of one GPU: rates are those of the part beside "
      "busy others, and nothing promises that parts run at the same time");
  if (const auto& reference = report.trained.reference) {
    say(true,
        absl::StrCat(
            "the float64 reference is of the first step; later ones are ",
            report.checked ? "held against a run of the same kernels alone"
                           : "not held against anything"));
    say(reference->tolerance > kFineTolerance,
        absl::StrFormat("what is off by less than %.0e in the kernels drowns "
                        "in the rounding of %s",
                        reference->tolerance, report.type));
  } else {
    say(report.clock != ClockKind::kPaced && !replays,
        absl::StrCat(report.checked
                         ? "kernels that are wrong alike in the sequential run:"
                         : "what the kernels compute: no sequential run and",
                     " no float64 reference (", report.no_reference, ")"));
  }
  return absl::StrJoin(texts, "; ");
}

TraceOrigin OriginOf(const ExecuteReport& report) {
  std::vector<absl::string_view> given;
  switch (report.clock) {
    case ClockKind::kVirtual:
      // Every operation starts when its inputs are there.
      given = {kTransferTimes, kCopyTimes, kSynchronisationTimes, kGapTimes};
      break;
    case ClockKind::kPaced:
      given = {kKernelTimes, kTransferTimes, kCopyTimes, kSynchronisationTimes,
               kOptimizerTimes};
      break;
    case ClockKind::kReal:
      if (report.replay) given = {kTransferTimes, kSynchronisationTimes};
      break;
  }
  TraceOrigin origin = {.clock = ClockName(report.clock),
                        .given = {given.begin(), given.end()},
                        .memory = std::string(kExecutorMemory)};
  if (report.replay && report.replay->ranks.size() == 1 &&
      report.report.pp > 1) {
    origin.only_rank = absl::StrCat(report.replay->ranks[0].rank);
  }
  return origin;
}

std::string HowExecuted(const ExecuteReport& report) {
  std::string how = absl::StrCat(ClockName(report.clock), " clock, ");
  if (report.replay) {
    const std::vector<ReplayedRank>& ranks = report.replay->ranks;
    absl::StrAppend(&how, ranks.size() > 1
                              ? "every rank alone, one after the other"
                              : absl::StrCat("rank ", ranks[0].rank, " alone"));
  } else {
    absl::StrAppend(&how, report.transport,
                    report.one_at_a_time ? ", one computes at a time" : "",
                    report.green_contexts ? ", a green context each" : "");
  }
  for (const std::string& part : {report.trained.device, report.type}) {
    if (!part.empty()) absl::StrAppend(&how, ", ", part);
  }
  const std::string& libraries = report.trained.libraries;
  return libraries.empty() ? how : absl::StrCat(how, " (", libraries, ")");
}

double PredictionError(const ExecuteReport& report) {
  return *report.predicted_iteration_s / report.report.iteration_s - 1;
}

std::string PredictionInWords(const ExecuteReport& report) {
  return absl::StrFormat("%s a step by the %s engine, %+.2f %%",
                         FormatSeconds(*report.predicted_iteration_s),
                         report.predicted_by, 100 * PredictionError(report));
}

int StepsInside(const ExecuteReport& report) {
  if (report.step_s.empty()) return 0;
  const StepInterval& predicted = *report.predicted_interval;
  return static_cast<int>(std::count_if(
      report.step_s.begin() + 1, report.step_s.end(),
      [&predicted](double step_s) {
        return step_s >= predicted.low_s && step_s <= predicted.high_s;
      }));
}

std::string IntervalInWords(const ExecuteReport& report) {
  std::string words =
      IntervalText(*report.predicted_interval, *report.predicted_iteration_s);
  if (report.step_s.size() > 1) {
    absl::StrAppend(&words, "; ", StepsInside(report), " of ",
                    report.step_s.size() - 1, " steps behind the first inside");
  }
  return words;
}

std::string ReplayInWords(const ExecuteReport& report) {
  const ReplayedRun& replay = *report.replay;
  if (report.clock == ClockKind::kVirtual) {
    return "1 pass: what a rank takes does not depend on when messages come";
  }
  return absl::StrFormat(
      "%d pass%s; arrivals then changed by %s at most (%s of a step)%s",
      replay.passes, replay.passes == 1 ? "" : "es",
      FormatSeconds(replay.change_s),
      FormatPercent(replay.change_s / report.report.iteration_s),
      replay.consistent ? ""
                        : ": NOT CONSISTENT, the times of passes change from "
                          "run to run");
}

std::string CheckInWords(const ExecuteReport& report) {
  const TrainingCheck& check = report.trained.check;
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
  return words + MissingInWords(check.missing);
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
  return absl::StrFormat("%s; allowed %.0e%s", words, check.tolerance,
                         MissingInWords(check.missing));
}

absl::Status Differs(absl::string_view from) {
  return absl::DataLossError(
      absl::StrCat("losses, gradients or weights differ from the ", from));
}

absl::Status VerdictOf(const ExecuteReport& report) {
  if (report.checked && !report.trained.check.ok()) {
    return Differs("sequential run");
  }
  const auto& reference = report.trained.reference;
  if (reference && !reference->ok()) return Differs("float64 reference");
  return absl::OkStatus();
}

}  // namespace pipewright
