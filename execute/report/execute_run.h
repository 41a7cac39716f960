// A run of `pipewright execute`, from its options to its report.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "execute/report/execute_report.h"
#include "execute/transport/nccl_transport.h"
#include "execute/transport/process_group.h"
#include "sim/config/run_config.h"

namespace pipewright {

inline constexpr double kUsualTimeout_s = 60;

// The options, as docs/execute.md has them.
struct ExecuteRequest {
  bool paced() const { return clock == "paced"; }
  bool real() const { return clock == "real"; }
  bool replays() const { return !replay_rank.empty(); }

  std::string device = "cpu";
  std::string clock = "virtual";
  int steps = 3;
  uint64_t seed = 1;
  double timeout_s = kUsualTimeout_s;
  bool no_check = false;
  bool reference = false;
  bool no_reference = false;
  std::optional<std::string> row;
  int row_runs = 1;
  std::string replay_rank;
  bool one_at_a_time = false;
  bool green_contexts = false;
  std::vector<std::string> slow;
  std::vector<std::string> late;
  bool trace = false;  // operations are wanted
};

// How the ranks come together.
struct ProcessJob {
  // Does this process speak for all, and has it the files of all?
  bool speaks() const { return job == nullptr || job->speaks(); }
  bool writes() const { return job == nullptr || job->process() == 0; }

  std::string name;                   // of TransportNames()
  std::unique_ptr<ProcessGroup> job;  // null: threads of this process
  const PwNccl* nccl = nullptr;
  int device_index = 0;  // the GPU of this process
  // How long the processes wait for each other before the run.
  double timeout_s = kUsualTimeout_s;
};

// What the run leaves to its caller.
struct ExecuteCalls {
  // The configuration, once the options have been found right.
  std::function<absl::StatusOr<RunConfig>()> read;
  std::function<void(const std::vector<std::string>& warnings)> warn;
  // The last of all, on the process that writes. `table`: what --row names is
  // to hold, nothing without it.
  std::function<absl::Status(const Program& program, ExecuteReport* report,
                             std::optional<std::string> table)>
      write;
  // Told of the run and the check; null but on the process that writes.
  Progress* progress = nullptr;
  // A thread computes for ever and cannot be joined: ends the process.
  std::function<void(const absl::Status&)> hopeless;
};

// Error: kInvalidArgument for options that do not fit each other, whatever the
// configuration says.
absl::Status CheckOptions(const ExecuteRequest& request);

// Errors: those of the steps; with processes the same on all that are still
// there. kDataLoss if a check does not hold.
absl::Status ExecuteRun(const ExecuteRequest& request,
                        const ProcessJob& processes, const ExecuteCalls& calls);

}  // namespace pipewright
