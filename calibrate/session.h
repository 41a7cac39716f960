// A whole calibration: which device, which shapes, in which order, and the
// profile that comes of it. Writes nothing but through its hooks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "calibrate/grid.h"
#include "calibrate/measure.h"
#include "calibrate/transfer_subjects.h"
#include "kernels/kernels.h"
#include "sim/model/model.h"
#include "sim/profile/profile.h"

namespace pipewright {

struct CalibrateOptions {
  ModelSpec model;
  // "fp32", "bf16", "fp8" (a layer's linear layers; the rest in bf16, or what
  // the device has); "" is the device's best: bf16 on a GPU, else fp32.
  std::string type;
  ShapeOptions grid;
  double budget_s = 30;  // see MeasureAll
  bool refuses = false;
  double spent_s = 0;  // used up of it before the call
  int rounds = 6;
  // Seconds of work before a GPU's state is first read; an idle card's clock is
  // low.
  double heat_s = 1;
  // What a run that was interrupted has measured; empty otherwise.
  Profile done;
  // The result is merged with this profile; its device must be this one.
  Profile older;
  // Their transfers are measured. Empty on a CPU: threads of this process
  // transfer.
  std::vector<Transport> transports;
  std::string transport_library;  // "Open MPI v4.1.4"; "" of threads
  // What the caller could not provide, and why. They join the source's
  // warnings.
  std::vector<std::string> warnings;
};

struct CalibrateHooks {
  std::function<bool()> stop;
  std::function<void(int round, int rounds, const std::string& subject)>
      progress;
  // Called before the rounds with about how long three rounds of all that is
  // missing take. May be empty.
  std::function<void(double minimum_s)> estimated;
  // Called after each round with all that is there, marked as incomplete.
  std::function<absl::Status(const Profile& partial)> save;
};

struct CalibrateResult {
  Profile profile;  // complete, unless interrupted
  bool interrupted = false;
  size_t missing = 0;  // series that have less than three rounds
  size_t series = 0;
};

// Measures all that `options.done` does not have. Errors: kUnavailable without
// a device, kResourceExhausted where the grid does not fit into memory or three
// rounds into the budget, kInvalidArgument
// for a model or a grid that cannot be, or where `done` or `older` is of
// another device (`done` also of another backend, libraries or type). All
// come before the first round.
absl::StatusOr<CalibrateResult> Calibrate(const PwKernels* kernels,
                                          const CalibrateOptions& options,
                                          const CalibrateHooks& hooks);

}  // namespace pipewright
