// What `pipewright execute` says besides the numbers of every run
// (sim/report): the check against the sequential run, the prediction, and what
// the clock leaves out.
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
  Report report;  // of the executed run
  ClockKind clock = ClockKind::kVirtual;
  std::string transport;  // of TransportNames()
  std::string device;
  std::string libraries;
  std::string type;  // of the products in linear layers; "" without kernels
  int steps = 0;
  std::optional<TrainingCheck> check;  // where real kernels have run
  std::optional<ReferenceCheck> reference;
  std::string no_reference;        // why there is none, where kernels have run
  std::vector<double> peak_bytes;  // [rank]
  std::vector<double> resident_bytes;  // [rank]
  std::vector<double> message_bytes;   // [rank], beside peak_bytes
  std::vector<double> owner_bytes;     // [rank], beside both, on the host
  // [rank], pinned: offloaded activations, an optimizer's states; empty
  // without kernels
  std::vector<double> peak_host_bytes;
  // Of the simulated run of the same program, where pass times are given.
  std::optional<double> predicted_iteration_s;
  std::optional<StepInterval> predicted_interval;  // of a step
  std::vector<double> predicted_span_s;  // [rank] of replica 0; the same
  std::string predicted_by;              // engine
  // Where ranks have run alone; what is composed of them is in `report`.
  std::optional<ReplayedRun> replay;
  bool one_at_a_time = false;  // one rank computes at a time
  bool green_contexts = false;
  std::vector<double> predicted_peak_activations;  // [rank]
  std::vector<double> predicted_peak_bytes;  // [rank]; empty without a model
  std::vector<double> predicted_peak_host_bytes;  // the same
  double needed_bytes = 0;  // of this machine, as estimated before the run
  double late_s = 0;        // of the paced clock
  double wall_s = 0;
  long preemptions = 0;  // involuntary context switches, of the real clock
};

// Steps after the first, which warms up, and how many of them lie in the
// predicted interval. Needs an interval.
struct StepsInside {
  int steps = 0;
  int inside = 0;
};
StepsInside CountInside(const ExecuteReport& report,
                        const std::vector<double>& step_s);
// "349 ms to 371 ms, -3.0 to +3.1 %; 7 of 8 steps behind the first inside".
std::string IntervalInWords(const ExecuteReport& report,
                            const std::vector<double>& step_s);

// "virtual", "paced", "real".
std::string ClockName(ClockKind clock);

// What a run like this does not show.
std::string NotValidated(const ExecuteReport& report);

// Which of its times were given and not measured; its traces say so.
TraceOrigin OriginOf(const ExecuteReport& report);

// How the run was done, in words: "virtual clock, threads".
std::string HowExecuted(const ExecuteReport& report);
// How often the ranks ran alone and what that changed; there is a replay.
std::string ReplayInWords(const ExecuteReport& report);
// "agree with the sequential run: bit for bit, …"; there is a check.
std::string CheckInWords(const ExecuteReport& report);
// kDataLoss where a check does not hold.
absl::Status VerdictOf(const ExecuteReport& report);
absl::Status Differs(absl::string_view from);
// "agrees with the float64 reference: …"; there is one.
std::string ReferenceInWords(const ReferenceCheck& check);
// The rank's peak over the predicted one, minus 1; nothing where it has not run
// or nothing was predicted.
std::optional<double> PeakErrorOf(const ExecuteReport& report, size_t rank);
// The same of the host.
std::optional<double> HostPeakErrorOf(const ExecuteReport& report, size_t rank);
// Activations were offloaded, or should have been.
bool HasHostPeaks(const ExecuteReport& report);
// The rank's time over the predicted one, minus 1; nothing where nothing was
// predicted.
std::optional<double> SpanErrorOf(const ExecuteReport& report, int rank);

// The keys of simulate, and "execute" with: clock, transport, device, type
// (null: no kernels), steps, step_s (list), predicted_iteration_s, error,
// predicted_interval_s (list), steps_inside, predicted_span_s (list),
// predicted_peak_activations (list), peak_bytes, predicted_peak_bytes,
// resident_bytes, message_bytes, needed_bytes, owner_bytes (where replicas have
// shards), peak_host_bytes and predicted_peak_host_bytes (where activations are
// offloaded), check {agrees, same_order, bits_owed,
// same_bits, steps_in_full, missing, loss_error, gradient_error, weight_error,
// losses, sequential_losses}, reference (null: none) {agrees, loss,
// reference_loss, loss_error, gradient_error, worst_gradient, weight_error
// (null: not compared), worst_weight, tolerance}, replay {ranks [rank, span_s,
// composed_span_s, late_s, change_s], passes, change_s, consistent},
// not_validated.
std::string ExecuteReportToJson(const ExecuteReport& report,
                                const std::vector<double>& step_s);
std::string ExecuteReportToText(const ExecuteReport& report,
                                const std::vector<double>& step_s);

}  // namespace pipewright
