// Errors as values. Code says whose mistake it is, and with that the exit code
// (see ExitCode below). No function below cli/ prints.
//
//   kInvalidArgument, kNotFound   bad usage or input               exit 2
//   kResourceExhausted            does not fit, limit not met      exit 3
//   kFailedPrecondition           schedule incomplete or deadlocks exit 4
//   anything else                 failure of ours, of the machine  exit 1
#pragma once

#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#define PW_RETURN_IF_ERROR(expression)                                         \
  do {                                                                         \
    if (absl::Status pw_status = (expression); !pw_status.ok()) [[unlikely]] { \
      return pw_status;                                                        \
    }                                                                          \
  } while (false)

#define PW_CONCAT_INNER(a, b) a##b
#define PW_CONCAT(a, b) PW_CONCAT_INNER(a, b)
#define PW_ASSIGN_OR_RETURN(target, expression) \
  PW_ASSIGN_OR_RETURN_IMPL(PW_CONCAT(pw_or_, __LINE__), target, expression)
#define PW_ASSIGN_OR_RETURN_IMPL(holder, target, expression) \
  auto holder = (expression);                                \
  if (!holder.ok()) [[unlikely]] {                           \
    return std::move(holder).status();                       \
  }                                                          \
  target = *std::move(holder)

namespace pipewright {

// "FIELD: VALUE is not allowed; allowed: ALLOWED", as kInvalidArgument.
absl::Status BadValue(absl::string_view field, absl::string_view value,
                      absl::string_view allowed);

// "FIELD: VALUE is not available in this version; allowed: ALLOWED", as
// kInvalidArgument.
absl::Status LaterValue(absl::string_view field, absl::string_view value,
                        absl::string_view allowed);

// Puts `where` ("file.yaml:3") and ": " in front of the message; keeps the
// code. An OK status stays OK.
absl::Status Prefix(absl::string_view where, const absl::Status& status);

// The exit code for `status` (docs/architecture.md, Command line).
int ExitCode(const absl::Status& status);

// The one place where exceptions become errors as values. Nothing here throws
// on purpose, but containers, threads and libraries do; what they throw stops
// at the edge of a verb, and at the edge of every thread, because it would end
// the process there.
//
// Returns what `body` returns. What it throws becomes kInternal, a failure of
// ours or of the machine: exit code 1. The same holds where memory
// runs out: whether a model fits into a device (exit code 3) is counted, or the
// device says so.
absl::Status WithoutExceptions(const std::function<absl::Status()>& body);

}  // namespace pipewright
