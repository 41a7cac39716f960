// How the ranks of `execute` come together: threads of this process, or
// processes that mpirun or the user has started.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "execute/run/run_processes.h"
#include "execute/transport/nccl_transport.h"

namespace pipewright {

struct JobOptions {
  std::string transport;  // "": as the process was started
  std::string bootstrap;  // "": by MPI
  int rank = -1;
  int ranks = -1;
  std::string listen;  // "": for this machine only
  double timeout_s = 60;
  std::string device;
};

void AddJobOptions(CLI::App* verb, JobOptions* options);

struct ProcessJob {
  std::string name;                   // of TransportNames()
  std::unique_ptr<ProcessGroup> job;  // null with threads
  const PwNccl* nccl = nullptr;
  int device_index = 0;  // the GPU of this process
};

// Errors: kInvalidArgument for options that do not go together; kUnavailable
// for a transport or device that is not there.
absl::StatusOr<ProcessJob> JoinJob(const JobOptions& options);

// For ExecuteOptions::data_path of a job with NCCL.
std::function<std::unique_ptr<Endpoint>(const Program&, Address, Endpoint*)>
DataPath(const ProcessJob& job, double timeout_s);

}  // namespace pipewright
