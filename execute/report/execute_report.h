// Report of `pipewright execute`: the numbers of every run (sim/report), the
// checks, the prediction, and what the clock leaves out. As text, JSON or page.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "execute/run/replay.h"
#include "execute/train/training.h"
#include "sim/report/report.h"
#include "sim/trace/trace_origin.h"

namespace pipewright {

struct ExecuteReport {
  const TrainingCheck* check() const {
    return checked ? &trained.check : nullptr;
  }
  // Has this rank of replica 0 run, with kernels?
  bool HasRun(size_t rank) const { return trained.peak_bytes[rank] > 0; }

  Report report;  // of the executed run
  ClockKind clock = ClockKind::kVirtual;
  std::string transport;  // of TransportNames()
  std::string type;  // of the products in linear layers; "" without kernels
  std::vector<double> step_s;  // [step]
  // Without kernels only its `run`. If ranks have run alone, the run composed
  // of them.
  TrainedRun trained;
  bool checked = false;      // against the sequential run
  std::string no_reference;  // why there is none, if kernels have run
  // The simulated run of the same program, if pass times are given.
  std::optional<double> predicted_iteration_s;
  std::optional<StepInterval> predicted_interval;  // of a step
  std::vector<double> predicted_span_s;            // [rank] of replica 0
  std::string predicted_by;                        // engine
  std::optional<ReplayedRun> replay;               // if ranks have run alone
  bool one_at_a_time = false;  // one rank computes at a time
  bool green_contexts = false;
  std::vector<double> predicted_peak_activations;  // [rank]
  std::vector<double> predicted_peak_bytes;  // [rank]; empty without a model
  std::vector<double> predicted_peak_host_bytes;  // the same
  double needed_bytes = 0;  // of this machine, as estimated before the run
};

// "virtual", "paced", "real", in the order of ClockKind.
const std::vector<std::string>& ClockNames();
std::string ClockName(ClockKind clock);

// What a run like this does not show.
std::string NotValidated(const ExecuteReport& report);

// Which of its times were given and not measured; its traces say so.
TraceOrigin OriginOf(const ExecuteReport& report);

// The words of a report, for text and page alike:
// "virtual clock, threads";
std::string HowExecuted(const ExecuteReport& report);
// "349 ms a step by the fast engine, +3.00 %"; there is a prediction;
std::string PredictionInWords(const ExecuteReport& report);
// "349 ms to 371 ms, -3.0 to +3.1 %; 7 of 8 steps behind the first inside";
// there is an interval;
std::string IntervalInWords(const ExecuteReport& report);
// how often the ranks ran alone and what that changed; there is a replay;
std::string ReplayInWords(const ExecuteReport& report);
// "agree with the sequential run: bit for bit, …"; there is a check;
std::string CheckInWords(const ExecuteReport& report);
// "agree with the float64 reference: …".
std::string ReferenceInWords(const ReferenceCheck& check);

// kDataLoss if a check does not hold.
absl::Status VerdictOf(const ExecuteReport& report);
absl::Status Differs(absl::string_view from);

// How many steps after the first, which warms up, lie in the predicted
// interval, which there is.
int StepsInside(const ExecuteReport& report);
// Predicted over measured time of a step, minus 1; there is a prediction.
double PredictionError(const ExecuteReport& report);

// The keys of simulate, and "execute" with its own
// (docs/execute.md, JSON keys).
std::string ExecuteReportToJson(const ExecuteReport& report);
std::string ExecuteReportToText(const ExecuteReport& report);

// "zb-v, pp 4, 8 microbatches, virtual clock", above a grid.
std::string ExecuteTitle(const ExecuteReport& report);
// The page of a simulated run with sections of its own: how it was executed and
// what that does not show, the checks, measured against predicted by rank.
std::string ExecutePage(const ExecuteReport& report, const Program& program);

}  // namespace pipewright
