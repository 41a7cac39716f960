// The one place where exceptions become errors as values. Nothing here throws
// on purpose, but containers, threads and libraries do; what they throw stops
// at the edge of a verb, and at the edge of every thread, which it would end
// the process of.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace pipewright {

// What `body` returns, or what it throws as kInternal, a failure of ours or of
// the machine: exit code 1 (status.h). So too where memory is out: whether a
// model fits into a device (exit code 3) is found by counting, or said by the
// device.
absl::Status WithoutExceptions(const std::function<absl::Status()>& body);

}  // namespace pipewright
