// What `pipewright execute` says besides the numbers of every run
// (sim/report): the check against the sequential run, the prediction, and what
// the clock leaves out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "execute/training.h"
#include "sim/report/report.h"

namespace pipewright {

struct ExecuteReport {
  Report report;  // of the executed run
  ClockKind clock = ClockKind::kVirtual;
  std::string transport;  // "threads", "mpi"
  std::string device;
  std::string libraries;
  int steps = 0;
  std::optional<TrainingCheck> check;  // where real kernels have run
  std::vector<double> peak_bytes;      // [rank]
  std::vector<double> resident_bytes;  // [rank]
  // Of the simulated run of the same program, where pass times are given.
  std::optional<double> predicted_iteration_s;
  std::string predicted_by;                        // engine
  std::vector<double> predicted_peak_activations;  // [rank], the schedule's
  double late_s = 0;                               // of the paced clock
  double wall_s = 0;
  long preemptions = 0;  // involuntary context switches, of the real clock
};

// "virtual", "paced", "real".
std::string ClockName(ClockKind clock);

// What a run under this clock does not show.
std::string NotValidated(ClockKind clock);

// The keys of simulate, and "execute" with: clock, transport, device, steps,
// step_s (list), predicted_iteration_s, error, predicted_peak_activations
// (list), peak_bytes, resident_bytes,
// check {agrees, same_order, same_bits, loss_error, gradient_error,
// weight_error, losses, sequential_losses}, not_validated.
std::string ExecuteReportToJson(const ExecuteReport& report,
                                const std::vector<double>& step_s);
std::string ExecuteReportToText(const ExecuteReport& report,
                                const std::vector<double>& step_s);

}  // namespace pipewright
