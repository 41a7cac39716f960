#include "sim/base/status.h"

#include "absl/strings/str_cat.h"

namespace pipewright {

absl::Status BadValue(absl::string_view field, absl::string_view value,
                      absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value, " is not allowed; allowed: ", allowed));
}

absl::Status LaterValue(absl::string_view field, absl::string_view value,
                        absl::string_view allowed) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": ", value,
                   " is not available in this version; allowed: ", allowed));
}

absl::Status Prefix(absl::string_view where, const absl::Status& status) {
  if (status.ok() || where.empty()) return status;
  return absl::Status(status.code(),
                      absl::StrCat(where, ": ", status.message()));
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
      return 2;
    case absl::StatusCode::kResourceExhausted:
      return 3;
    case absl::StatusCode::kFailedPrecondition:
      return 4;
    default:
      return 1;
  }
}

}  // namespace pipewright
