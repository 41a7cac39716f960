#include "sim/cli/execute_job.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "execute/transport/nccl_transport.h"
#include "execute/transport/socket_job.h"
#include "sim/base/names.h"
#include "sim/base/status.h"
#include "sim/cli/common.h"
#include "sim/profile/profile.h"

namespace pipewright {
namespace {

// No process has more sockets than that.
constexpr int kMostRanks = 1 << 16;

absl::StatusOr<std::unique_ptr<ProcessGroup>> JoinByFile(
    const JobOptions& options) {
  absl::string_view path = options.bootstrap;
  if (!absl::ConsumePrefix(&path, "file:") || path.empty()) {
    return BadValue("--bootstrap", options.bootstrap, "file:PATH");
  }
  if (options.ranks < 1) {
    return BadValue("--ranks", absl::StrCat(options.ranks), "1 or more");
  }
  if (options.rank < 0 || options.rank >= options.ranks) {
    return BadValue("--rank", absl::StrCat(options.rank),
                    absl::StrCat("0 to ", options.ranks - 1));
  }
  return CreateSocketJob({.path = std::string(path),
                          .process = options.rank,
                          .processes = options.ranks,
                          .timeout_s = options.timeout_s,
                          .listen = options.listen});
}

}  // namespace

void AddJobOptions(CLI::App* verb, JobOptions* options) {
  verb->add_option("--transport", options->transport,
                   "threads; mpi (under mpirun); sockets (--bootstrap); nccl: "
                   "data between GPUs, one process each (default: as the "
                   "process was started)")
      ->type_name("NAME");
  verb->add_option("--bootstrap", options->bootstrap,
                   "processes find each other through this file instead of "
                   "mpirun; all of them must see it")
      ->type_name("file:PATH");
  AddInteger(verb, "--rank", &options->rank, 0, kMostRanks - 1,
             "with --bootstrap: number of this process, dp_rank * pp + rank")
      ->type_name("R");
  AddInteger(verb, "--ranks", &options->ranks, 1, kMostRanks,
             "with --bootstrap: number of processes")
      ->type_name("P");
  verb->add_option("--listen", options->listen,
                   "with --bootstrap: network interface, or its IPv4 address, "
                   "at which other machines reach this process (default: "
                   "this machine only)")
      ->type_name("INTERFACE");
}

absl::StatusOr<ProcessJob> JoinJob(const JobOptions& options) {
  const bool by_file = !options.bootstrap.empty();
  const bool mpi = ProcessGroup::Started() && !by_file;
  std::string name = options.transport;
  if (name.empty()) {
    name = by_file ? kSocketsTransport
           : mpi   ? kMpiTransport
                   : kThreadsTransport;
  }
  const std::vector<std::string> known = TransportNames();
  if (std::find(known.begin(), known.end(), name) == known.end()) {
    return UnknownName("--transport", name, known);
  }
  if (!by_file &&
      (options.rank >= 0 || options.ranks >= 0 || !options.listen.empty())) {
    return BadValue("--rank, --ranks, --listen", "given",
                    "together with --bootstrap file:PATH only");
  }
  ProcessJob joined = {.name = name};
  if (name == kThreadsTransport) {
    if (!by_file) return joined;
    return BadValue("--transport", "threads with --bootstrap",
                    "sockets or nccl");
  }
  if (name == kMpiTransport && by_file) {
    return BadValue("--transport", "mpi with --bootstrap",
                    "mpi under mpirun; sockets or nccl with --bootstrap");
  }
  if (name == kSocketsTransport && !by_file) {
    return BadValue("--transport", "sockets without --bootstrap",
                    "--bootstrap file:PATH --rank R --ranks P");
  }
  if (name == kNcclTransport) {
    if (options.device != "cuda") {
      return BadValue("--transport",
                      absl::StrCat("nccl with --device ", options.device),
                      "nccl with --device cuda");
    }
    if (!by_file && !mpi) {
      return BadValue("--transport", "nccl in one process",
                      "mpirun -n P, or --bootstrap file:PATH --rank R "
                      "--ranks P");
    }
    // Before anything is done on a device.
    PW_ASSIGN_OR_RETURN(joined.nccl, LoadNccl());
  }
  PW_ASSIGN_OR_RETURN(joined.job,
                      by_file ? JoinByFile(options) : ProcessGroup::Create());
  if (joined.nccl != nullptr) {
    PW_ASSIGN_OR_RETURN(joined.device_index,
                        DeviceOfProcess(*joined.nccl, joined.job->process()));
  }
  return joined;
}

std::function<std::unique_ptr<Endpoint>(const Program&, Address, Endpoint*)>
DataPath(const ProcessJob& job, double timeout_s) {
  const NcclOptions options = {
      .nccl = job.nccl, .device = job.device_index, .timeout_s = timeout_s};
  return [options](const Program& program, Address self, Endpoint* control) {
    return std::make_unique<NcclEndpoint>(program, self, control, options);
  };
}

}  // namespace pipewright
