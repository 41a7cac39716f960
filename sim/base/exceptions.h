// The one place where exceptions become errors as values. Nothing here throws
// on purpose, but containers, threads and libraries do; what they throw stops
// at the edge of a verb, and at the edge of every thread, because it would end
// the process there.
#pragma once

#include <functional>

#include "absl/status/status.h"

namespace pipewright {

// Returns what `body` returns. What it throws becomes kInternal, a failure of
// ours or of the machine: exit code 1 (status.h). The same holds where memory
// runs out: whether a model fits into a device (exit code 3) is counted, or the
// device says so.
absl::Status WithoutExceptions(const std::function<absl::Status()>& body);

}  // namespace pipewright
