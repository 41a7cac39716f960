// The verb execute: its options, and the steps of a run (execute.cc). What the
// ranks do is in execute_train.cc, what is said of it in execute_report.h.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/train/training.h"
#include "kernels/kernels.h"
#include "sim/cli/execute_job.h"
#include "sim/cli/execute_report.h"
#include "sim/cli/execute_row.h"
#include "sim/cli/verbs.h"
#include "sim/config/prepare.h"
#include "sim/program/program.h"

namespace pipewright {

inline constexpr double kUsualTimeout_s = 60;

struct Executed {
  ExecutedRun run;
  std::vector<double> peak_activations;
  MeasuredMemory memory;
  std::vector<std::string> warnings;
};

struct Execute {
  ConfigOptions config;
  OutputFiles files;
  bool json = false;
  std::string device = "cpu";
  std::string clock = "virtual";
  int steps = 3;
  uint64_t seed = 1;
  double timeout_s = kUsualTimeout_s;
  JobOptions job_options;
  bool no_check = false;
  bool reference = false;
  bool no_reference = false;
  int row_runs = 1;
  std::string replay_rank;
  bool one_at_a_time = false;
  bool green_contexts = false;
  std::vector<std::string> slow;
  std::vector<std::string> late;

  absl::Status Run();

 private:
  absl::Status CheckOptions() const;
  // What is known before the first kernel runs.
  struct Prepared {
    ClockKind kind = ClockKind::kVirtual;
    TrainingOptions training;
    PreparedRun run;
    Program program;
    RowFile row_file;
    std::vector<std::string> warnings;
    // What follows is of runs with kernels.
    const PwKernels* kernels = nullptr;
    ExecutedModel model;
    std::string no_reference;   // why there is none
    std::vector<int> replayed;  // ranks, with --replay-rank
    std::vector<MemoryClaim> memory;
  };

  absl::Status RunIn(const ProcessJob& processes);
  absl::Status Prepare(const ProcessJob& processes, Prepared* prepared);
  // The options that make it another run. Not among them: how it is checked and
  // watched, and the times that it is predicted from.
  std::string OptionsOf(const Prepared& prepared) const;
  std::string SameOnAll(const Prepared& prepared) const;
  absl::Status Conclude(const Prepared& prepared, Executed* executed,
                        ExecuteReport* report);
  absl::StatusOr<ClockKind> Clock() const;
  absl::StatusOr<std::vector<int>> ReplayedRanks(ClockKind kind, int pp) const;
  absl::StatusOr<const PwKernels*> Kernels() const;
  // Why a run has no float64 reference; "" where it has one.
  std::string WhyNoReference(const PreparedRun& run, const Program& program,
                             const ExecutedModel& model) const;
  // Kernels, model and checks, and what they will take.
  absl::Status PrepareTraining(const ProcessJob& processes,
                               Prepared* prepared) const;
  absl::Status Train(const Prepared& prepared, ProcessGroup* job,
                     ExecuteReport* report, Executed* executed);
  void PutFiles(const Program& program, const Executed& executed,
                const ExecuteReport& report);
};

}  // namespace pipewright
