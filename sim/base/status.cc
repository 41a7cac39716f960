#include "sim/base/status.h"

#include <exception>
#include <new>
#include <stdexcept>

#include "absl/strings/str_cat.h"
#include "sim/base/error_parts.h"

namespace pipewright {

absl::Status BadValue(absl::string_view field, absl::string_view value,
                      absl::string_view allowed) {
  return BadValue(FieldPlace::FromFlag("", field), value, allowed);
}

absl::Status LaterValue(absl::string_view field, absl::string_view value,
                        absl::string_view allowed) {
  return LaterValue(FieldPlace::FromFlag("", field), value, allowed);
}

absl::Status Prefix(absl::string_view where, const absl::Status& status) {
  if (status.ok() || where.empty()) return status;
  return Reworded(status, absl::StrCat(where, ": ", status.message()));
}

int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kUnimplemented:
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

absl::Status WithoutExceptions(const std::function<absl::Status()>& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return absl::InternalError("out of memory");
  } catch (const std::length_error&) {
    // What a container says to a size that no memory could hold.
    return absl::InternalError("out of memory");
  } catch (const std::exception& exception) {
    return absl::InternalError(exception.what());
  } catch (...) {
    return absl::InternalError("an exception of an unknown type");
  }
}

}  // namespace pipewright
