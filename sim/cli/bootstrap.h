// Options of processes that find each other through a file instead of mpirun:
// --bootstrap, --rank, --ranks and --listen, of `execute` and `calibrate`.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "execute/transport/process_group.h"
#include "sim/cli/common.h"

namespace pipewright {

struct Bootstrap {
  std::string file;  // "file:PATH"; "": not asked for
  int rank = -1;
  int ranks = -1;
  std::string listen;  // "": for this machine only

  // `number`: what --rank counts.
  void AddTo(CLI::App* verb, const std::string& number);
  bool given() const { return !file.empty(); }
  // Waits `timeout_s` for all to come. Errors: kInvalidArgument; kUnavailable
  // with those that have not come.
  absl::StatusOr<std::unique_ptr<ProcessGroup>> Join(double timeout_s) const;
  // Error: kInvalidArgument where options stand without --bootstrap.
  absl::Status Check() const;
};

}  // namespace pipewright
