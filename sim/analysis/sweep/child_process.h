// A child process that serves sockets with one thread each and ends with them,
// or with its parent.
#pragma once

#include <functional>
#include <vector>

#include "absl/status/statusor.h"

namespace pipewright {

// Calls `serve` in a new process with each of `files`, the last on its main
// thread; all other descriptors but the standard ones are closed there. Ctrl-C
// does not end it. Error: kInternal. Gives the process id.
absl::StatusOr<int> StartChild(const std::vector<int>& files,
                               const std::function<void(int)>& serve);

}  // namespace pipewright
